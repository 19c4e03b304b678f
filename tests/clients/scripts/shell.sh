# Uses features of bash: pipes, subshells, here-documents, background jobs, traps, descriptors.
set -eu
trap 'echo leaving' EXIT
numbers=(3 1 2)
printf '%s\n' "${numbers[@]}" | sort -n | tr '\n' ' '; echo
(cd / && pwd)
cat <<TEXT | wc -l
one
two
TEXT
jobs=()
for i in 1 2 3; do (exit "$i") & jobs+=($!); done
codes=0
for job in "${jobs[@]}"; do wait "$job" || codes=$((codes + $?)); done
echo "codes $codes"
diff <(seq 1 3) <(seq 1 4) || true
exec 3>&1; echo "descriptor three" >&3
yes | head -n 2
awk 'BEGIN { print 6 * 7 }'
