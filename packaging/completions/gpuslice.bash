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
            gpuslice,cdi)
                cmd="gpuslice__subcmd__cdi"
                ;;
            gpuslice,check)
                cmd="gpuslice__subcmd__check"
                ;;
            gpuslice,completions)
                cmd="gpuslice__subcmd__completions"
                ;;
            gpuslice,devices)
                cmd="gpuslice__subcmd__devices"
                ;;
            gpuslice,doctor)
                cmd="gpuslice__subcmd__doctor"
                ;;
            gpuslice,driver-limit)
                cmd="gpuslice__subcmd__driver__subcmd__limit"
                ;;
            gpuslice,drop-cache)
                cmd="gpuslice__subcmd__drop__subcmd__cache"
                ;;
            gpuslice,env)
                cmd="gpuslice__subcmd__env"
            gpuslice,events)
                cmd="gpuslice__subcmd__events"
                ;;
            gpuslice,gc)
                cmd="gpuslice__subcmd__gc"
                ;;
            gpuslice,headroom)
                cmd="gpuslice__subcmd__headroom"
                ;;
            gpuslice,help)
                cmd="gpuslice__subcmd__help"
                ;;
            gpuslice,history)
                cmd="gpuslice__subcmd__history"
                ;;
            gpuslice,man)
                cmd="gpuslice__subcmd__man"
                ;;
            gpuslice,metrics)
                cmd="gpuslice__subcmd__metrics"
            gpuslice,plan)
                cmd="gpuslice__subcmd__plan"
                ;;
            gpuslice,report)
                cmd="gpuslice__subcmd__report"
                ;;
            gpuslice,residency)
                cmd="gpuslice__subcmd__residency"
                ;;
            gpuslice,run)
                cmd="gpuslice__subcmd__run"
                ;;
            gpuslice,runtime)
                cmd="gpuslice__subcmd__runtime"
                ;;
            gpuslice,status)
                cmd="gpuslice__subcmd__status"
                ;;
            gpuslice,top)
                cmd="gpuslice__subcmd__top"
                ;;
            gpuslice__subcmd__cdi,generate)
                cmd="gpuslice__subcmd__cdi__subcmd__generate"
                ;;
            gpuslice__subcmd__headroom,reset)
                cmd="gpuslice__subcmd__headroom__subcmd__reset"
                ;;
            gpuslice__subcmd__runtime,configure)
                cmd="gpuslice__subcmd__runtime__subcmd__configure"
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
    done

    case "${cmd}" in
        gpuslice)
            opts="-h -V --help --version run check status report metrics headroom drop-cache residency devices gc cdi runtime driver-limit completions man help"
            opts="-h -V --help --version run check status report plan env headroom drop-cache residency devices gc cdi runtime driver-limit completions man help"
            opts="-h -V --help --version run check status report events history headroom drop-cache residency devices gc cdi runtime driver-limit completions man help"
            opts="-h -V --help --version run check status doctor report headroom drop-cache residency devices gc cdi runtime driver-limit completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__cdi)
            opts="-h --help generate"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__cdi__subcmd__generate)
            opts="-h --output --format --size --hook --sim --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "yaml json" -- "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hook)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__check)
            opts="-v -h --memory --device --total --present-as --headroom --reserve --host-allowance --managed --pressure --threshold --page-cache --page-cache-share --overcommit --no-enforce --name --config --sim --log --log-file --bare --json --verbose --timeout --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --total)
                    COMPREPLY=($(compgen -W "slice device" -- "${cur}"))
                    return 0
                    ;;
                --present-as)
                    COMPREPLY=($(compgen -W "uma discrete" -- "${cur}"))
                    return 0
                    ;;
                --headroom)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserve)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-allowance)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --managed)
                    COMPREPLY=($(compgen -W "count allow" -- "${cur}"))
                    return 0
                    ;;
                --pressure)
                    COMPREPLY=($(compgen -W "refuse release" -- "${cur}"))
                    return 0
                    ;;
                --threshold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --page-cache)
                    COMPREPLY=($(compgen -W "keep drop drop-behind" -- "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log)
                    COMPREPLY=($(compgen -W "warn info debug" -- "${cur}"))
                    return 0
                    ;;
                --log-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__completions)
            opts="-h --help bash zsh fish"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__devices)
            opts="-h --json --write --sim --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__doctor)
            opts="-h --node --json --root --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__driver__subcmd__limit)
            opts="-h --cgroup --device --memory --guarantee --sim --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --cgroup)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --guarantee)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__drop__subcmd__cache)
            opts="-h --all --suffix --json --dry-run --live --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --suffix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --live)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__env)
            opts="-h --file --format --owner --overcommit --sim --help"
        gpuslice__subcmd__events)
            opts="-h --since --follow --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "shell slurm json" -- "${cur}"))
                    return 0
                    ;;
                --owner)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sim)
                --since)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__gc)
            opts="-h --force --root --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__headroom)
            opts="-h --json --help reset"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__headroom__subcmd__reset)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__help)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__history)
            opts="-h --since --json --plot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --since)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --plot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__man)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__metrics)
            opts="-h --output --format --compatible --root --help"
        gpuslice__subcmd__plan)
            opts="-h --sim --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "prometheus openmetrics" -- "${cur}"))
                    return 0
                    ;;
                --compatible)
                    COMPREPLY=($(compgen -W "hami gpu-sharing" -- "${cur}"))
                    return 0
                    ;;
                --root)
                --sim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__report)
            opts="-h --watch --for --every --json --plot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --every)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --plot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__residency)
            opts="-h --all --suffix --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --suffix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__run)
            opts="-h --memory --device --total --present-as --headroom --reserve --host-allowance --managed --pressure --threshold --page-cache --page-cache-share --overcommit --no-enforce --name --config --sim --log --log-file --bare --slice --file --strict --dry-run --help"
            opts="-h --memory --device --total --present-as --headroom --reserve --host-allowance --managed --pressure --threshold --page-cache --page-cache-share --overcommit --no-enforce --name --config --sim --log --log-file --bare --strict --on-refusal --dry-run --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --total)
                    COMPREPLY=($(compgen -W "slice device" -- "${cur}"))
                    return 0
                    ;;
                --present-as)
                    COMPREPLY=($(compgen -W "uma discrete" -- "${cur}"))
                    return 0
                    ;;
                --headroom)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserve)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-allowance)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --managed)
                    COMPREPLY=($(compgen -W "count allow" -- "${cur}"))
                    return 0
                    ;;
                --pressure)
                    COMPREPLY=($(compgen -W "refuse release" -- "${cur}"))
                    return 0
                    ;;
                --threshold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --page-cache)
                    COMPREPLY=($(compgen -W "keep drop drop-behind" -- "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log)
                    COMPREPLY=($(compgen -W "warn info debug" -- "${cur}"))
                    return 0
                    ;;
                --log-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --slice)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --file)
                --on-refusal)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__runtime)
            opts="-h --help configure"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__runtime__subcmd__configure)
            opts="-h --runtime --by --config --hooks-dir --always --size --set-as-default --hook --remove --dry-run --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --runtime)
                    COMPREPLY=($(compgen -W "docker containerd crio podman nvidia" -- "${cur}"))
                    return 0
                    ;;
                --by)
                    COMPREPLY=($(compgen -W "hooks runtime" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hooks-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hook)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__status)
            opts="-h --processes --watch --json --root --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        gpuslice__subcmd__top)
            opts="-h --interval --root --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
    done < <("${program%d}" complete -- "${words[@]}" 2>/dev/null)
}
complete -F _gpuslice gpuslice gpusliced
