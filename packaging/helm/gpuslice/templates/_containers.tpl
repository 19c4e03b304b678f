{{- /* A container that needs no right but that of writing root's files. */ -}}
{{- define "gpuslice.restricted" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
# Where SELinux is on, it keeps other types from the files of the node.
seLinuxOptions: {type: spc_t}
{{- end -}}

{{- /* A container that enters the mount namespace of the node, where the driver is. */ -}}
{{- define "gpuslice.onHost" -}}
env:
  # Metrics name the node. The container's host name is its pod's.
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
{{- with .Values.host.driverLibraries }}
  - {name: LD_LIBRARY_PATH, value: {{ . | quote }}}
{{- end }}
securityContext:
  privileged: true
{{- end -}}

{{- /* gpuslice-dra with its options, as a list of JSON; its verb may follow. */ -}}
{{- define "gpuslice.driverCommand" -}}
{{- $command := list "/usr/bin/gpuslice-dra"
  "--host-root" "/host"
  "--hook" (printf "%s/bin/gpuslice-hook" .Values.host.folder)
  "--plugins" (printf "%s/plugins" .Values.host.kubelet)
  "--plugins-registry" (printf "%s/plugins_registry" .Values.host.kubelet)
  "--cdi" .Values.host.cdi -}}
{{- concat $command .Values.claims.arguments | toJson -}}
{{- end -}}
