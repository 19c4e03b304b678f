{{- define "gpuslice.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpuslice.labels" -}}
app.kubernetes.io/name: gpuslice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "gpuslice.selector" -}}
app.kubernetes.io/name: gpuslice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpuslice.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "gpuslice.name" .) -}}
{{- end -}}

{{- define "gpuslice.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Names of the policies: they have no namespace, so they carry that of the release. */ -}}
{{- define "gpuslice.clusterName" -}}
{{- if eq (include "gpuslice.name" .) .Release.Namespace -}}
{{ include "gpuslice.name" . }}
{{- else -}}
{{ include "gpuslice.name" . }}-{{ .Release.Namespace }}
{{- end -}}
{{- end -}}

{{- /* The ConfigMap with the limits of namespaces. */ -}}
{{- define "gpuslice.limits" -}}
{{- .Values.limits.configMap | default (printf "%s-limits" (include "gpuslice.name" .)) -}}
{{- end -}}

{{- /* Whether the node runs the NRI plugin. During the removal it would add a hook that is gone. */ -}}
{{- define "gpuslice.nri" -}}
{{- if and (eq .Values.annotations.by "nri") (not .Values.cleanup) }}true{{ end -}}
{{- end -}}

{{- /* The policy's rules for containers that request no slice, as a list of JSON. */ -}}
{{- define "gpuslice.rules" -}}
{{- $rules := list -}}
{{- range $name := list "default" "maximum" "namespaces" -}}
{{- if regexMatch (printf `(?m)^[ \t]*\[?[ \t]*%s\b` $name) $.Values.policy -}}
{{- $rules = append $rules (printf "[%s]" (eq $name "namespaces" | ternary "namespaces.*" $name)) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch `(?m)^[ \t]*deny-unannotated[ \t]*=[ \t]*true\b` .Values.policy -}}
{{- $rules = append $rules "deny-unannotated" -}}
{{- end -}}
{{- $rules | toJson -}}
{{- end -}}

{{- /* Mistakes that no schema can express. Each says what to change. */ -}}
{{- define "gpuslice.check" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if and .Values.claims.enabled (semverCompare "<1.34.0-0" $version) -}}
{{- fail (printf "claims need Kubernetes 1.34 or later, and this is %s: set claims.enabled=false and annotations.by=runtimeClass" $version) -}}
{{- end -}}
{{- if and .Values.claims.deviceClass.extendedResourceName (semverCompare "<1.36.0-0" $version) -}}
{{- fail (printf "claims.deviceClass.extendedResourceName needs Kubernetes 1.36 or later, and this is %s" $version) -}}
{{- end -}}
{{- if and (not .Values.claims.enabled) (eq .Values.annotations.by "none") -}}
{{- fail "nothing gives pods a slice: set claims.enabled=true, or annotations.by to runtimeClass, nri or engine" -}}
{{- end -}}
{{- if and .Values.guard.enabled (not (contains "[guard]" .Values.daemon)) -}}
{{- fail "guard.enabled needs the table [guard] in the value daemon" -}}
{{- end -}}
{{- if contains "[metrics]" .Values.daemon -}}
{{- fail "the table [metrics] is made of the values metrics: remove it from the value daemon" -}}
{{- end -}}
{{- if and .Values.limits.enabled (not .Values.admission.enabled) -}}
{{- fail "limits need admission.enabled=true" -}}
{{- end -}}
{{- end -}}
