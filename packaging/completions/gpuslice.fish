# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gpuslice_global_optspecs
    string join \n h/help V/version
end

function __fish_gpuslice_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_gpuslice_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_gpuslice_using_subcommand
    set -l cmd (__fish_gpuslice_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c gpuslice -n "__fish_gpuslice_needs_command" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -s V -l version -d 'Print version'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "run" -d 'Run a command in a slice of GPU memory'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "check" -d 'Ask every memory API by every route and compare the answers'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "status" -d 'Show the slices that are running: what they may hold, and who holds what'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "headroom" -d 'List the headroom that runs have learned, or forget it'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "drop-cache" -d 'Drop model files from the page cache'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "residency" -d 'Show how much of model files is in the page cache'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "devices" -d 'List the GPUs of this machine, by the names that other verbs take'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "completions" -d 'Print a completion script for a shell'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "man" -d 'Print a man page'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l memory -d 'Limit every GPU to this much memory (24GiB, 24Gi, 24G, 24576MiB or bytes)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l device -d 'Limit one GPU, named by its index in nvidia-smi or its uuid; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l total -d 'What TOTAL shows: the slice, or the device\'s own total (for flags that are percentages of the machine) [default: slice]' -r -f -a "slice\t'The slice\'s'
device\t'The device\'s own'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l present-as -d 'On unified memory, how the GPU presents itself: as uma, or as a discrete card, for programs that read /proc/meminfo of an integrated one [default: uma]' -r -f -a "uma\t'An integrated device'
discrete\t'A discrete one'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l headroom -d 'Show this much less than the limit; or by what earlier runs of this --name were short' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l reserve -d 'On unified memory, what the host keeps for itself [default: by the machine\'s size]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l name -d 'What logs and lists call the slice [default: run-PID]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l config -d 'Use this slice file as it is [env: GPUSLICE_CONFIG]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l sim -d 'Run on a simulated machine: rtx3090, h200, h200-mig, gb10, orin, thor, n1x, several (2xh200, rtx3090+h200) or a scenario file (machine.toml)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l log -d 'Let the preloaded library say what it does: warn, info or debug [env: GPUSLICE_LOG]' -r -f -a "warn\t''
info\t''
debug\t''"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l log-file -d 'Append that to a file instead of standard error [env: GPUSLICE_LOG_FILE]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l no-enforce -d 'Only count: nothing is refused, and `gpuslice status` shows what is over the limit'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l bare -d 'No slice and no preload at all, for comparisons'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l memory -d 'Limit every GPU to this much memory (24GiB, 24Gi, 24G, 24576MiB or bytes)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l device -d 'Limit one GPU, named by its index in nvidia-smi or its uuid; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l total -d 'What TOTAL shows: the slice, or the device\'s own total (for flags that are percentages of the machine) [default: slice]' -r -f -a "slice\t'The slice\'s'
device\t'The device\'s own'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l present-as -d 'On unified memory, how the GPU presents itself: as uma, or as a discrete card, for programs that read /proc/meminfo of an integrated one [default: uma]' -r -f -a "uma\t'An integrated device'
discrete\t'A discrete one'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l headroom -d 'Show this much less than the limit; or by what earlier runs of this --name were short' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l reserve -d 'On unified memory, what the host keeps for itself [default: by the machine\'s size]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l name -d 'What logs and lists call the slice [default: run-PID]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l config -d 'Use this slice file as it is [env: GPUSLICE_CONFIG]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l sim -d 'Run on a simulated machine: rtx3090, h200, h200-mig, gb10, orin, thor, n1x, several (2xh200, rtx3090+h200) or a scenario file (machine.toml)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l log -d 'Let the preloaded library say what it does: warn, info or debug [env: GPUSLICE_LOG]' -r -f -a "warn\t''
info\t''
debug\t''"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l log-file -d 'Append that to a file instead of standard error [env: GPUSLICE_LOG_FILE]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l timeout -d 'How long one route may take to answer' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l no-enforce -d 'Only count: nothing is refused, and `gpuslice status` shows what is over the limit'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l bare -d 'No slice and no preload at all, for comparisons'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l json -d 'Print JSON for programs instead of a table'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -s v -l verbose -d 'List every function and route with its answer'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -l watch -d 'Show it again every second, until ^C'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -l json -d 'Print JSON; with --watch, one line each second'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand headroom; and not __fish_seen_subcommand_from reset" -l json -d 'Print JSON: bytes by slice and device'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand headroom; and not __fish_seen_subcommand_from reset" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand headroom; and not __fish_seen_subcommand_from reset" -f -a "reset" -d 'Forget what one slice has learned, or all'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand headroom; and __fish_seen_subcommand_from reset" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand drop-cache" -l suffix -d 'In folders, files with this suffix; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand drop-cache" -l live -d 'Also what this process has mapped, while it runs; without PATH, all model files it has' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand drop-cache" -l all -d 'In folders, every file, and not only what model files are called'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand drop-cache" -l json -d 'Print JSON'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand drop-cache" -l dry-run -d 'Say what would be dropped, and drop nothing'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand drop-cache" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand residency" -l suffix -d 'In folders, files with this suffix; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand residency" -l all -d 'In folders, every file, and not only what model files are called'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand residency" -l json -d 'Print JSON'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand residency" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -l sim -d 'The GPUs of a simulated machine, as in `gpuslice run`' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -l json -d 'Print JSON'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand completions" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand man" -s h -l help -d 'Print help'
