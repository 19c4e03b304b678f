# Completion of gpuslice and gpusliced for bash. `gpuslice complete` knows the candidates.
_gpuslice() {
    local word line value glue=
    local -a words=()
    # bash splits words at "=": they are put together again.
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ $word == = && ${#words[@]} -gt 1 ]]; then
            words[${#words[@]}-1]+="="
            glue=1
        elif [[ $glue ]]; then
            words[${#words[@]}-1]+=$word
            glue=
        else
            words+=("$word")
        fi
    done
    local last=${words[${#words[@]}-1]}
    # Readline replaces only what follows the last "=".
    local before=
    [[ $last == *=* ]] && before=${last%=*}=
    local program=${words[0]/#\~/$HOME}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files)
                compopt -o default 2>/dev/null
                ;;
            :command\ *)
                local count=${line#:command }
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((COMP_CWORD + 1 - count))
                elif [[ $count -eq 1 ]]; then
                    compopt -o default 2>/dev/null
                    while IFS= read -r value; do
                        COMPREPLY+=("$value")
                    done < <(compgen -c -- "$last")
                else
                    compopt -o default 2>/dev/null
                fi
                ;;
            *)
                value=${line%%$'\t'*}
                [[ $value == *= ]] && compopt -o nospace 2>/dev/null
                COMPREPLY+=("${value#"$before"}")
                ;;
        esac
    done < <("${program%d}" complete -- "${words[@]}" 2>/dev/null)
}
complete -F _gpuslice gpuslice gpusliced
