# Completion of gpuslice and gpusliced for fish. `gpuslice complete` knows the candidates.
function __gpuslice_complete
    set -l given (commandline -opc) (commandline -ct)
    set -l program (string replace -r 'd$' '' -- $given[1] | string replace -r '^~' $HOME)
    for line in ($program complete -- $given 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':command *'
                set -l count (string replace ':command ' '' -- $line)
                set -l start (math (count $given) - $count + 1)
                set -l rest (string escape -- $given[$start..-1])
                set rest[-1] $given[-1]
                complete -C (string join -- ' ' $rest)
            case '*'
                echo -- $line
        end
    end
end
complete -c gpuslice -f -a '(__gpuslice_complete)'
complete -c gpusliced -f -a '(__gpuslice_complete)'
