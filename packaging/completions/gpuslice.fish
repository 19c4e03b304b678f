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

function __fish_gpuslice_using_subcommand
    set -l cmd (__fish_gpuslice_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c gpuslice -n "__fish_gpuslice_needs_command" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -s V -l version -d 'Print version'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "run" -d 'Run a command in a slice of GPU memory'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "check" -d 'Query every memory API by every route and compare the answers'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "status" -d 'Show the running slices: their limits, and the memory that each process holds'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "top" -d 'Show the slices live, with their history, in the whole terminal'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "doctor" -d 'Find out why a slice is or is not in force'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "report" -d 'Show the device and host memory of slices by process, and its growth'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "metrics" -d 'Print the numbers of all slices as metrics, for Prometheus'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "plan" -d 'Check whether the slices of a file fit together on this machine'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "env" -d 'Make a slice for a shell, a Slurm job or a Jupyter kernel, and print its variables'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "events" -d 'Show what happened to slices: starts, ends, refusals'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "history" -d 'List the runs and containers that had a slice, and draw their use of memory'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "headroom" -d 'List or reset the headroom that runs have learned'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "drop-cache" -d 'Drop model files from the page cache'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "residency" -d 'Show how much of each model file is in the page cache'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "devices" -d 'List the GPUs of this machine and the names that other commands accept'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "gc" -d 'Remove files of runs and containers that have ended'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "cdi" -d 'Describe slices to container engines as CDI devices'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "runtime" -d 'Configure a container engine to give its containers slices'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "driver-limit" -d 'Set the driver\'s own memory limit of a cgroup'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "completions" -d 'Print a completion script for a shell'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "man" -d 'Print a man page'
complete -c gpuslice -n "__fish_gpuslice_needs_command" -f -a "help" -d 'Print the help of a command, as --help does'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l memory -d 'Limit every GPU to this much memory: 24GiB or 24576MiB (24Gi, 24G and 24GB are 24GiB; a number without a unit counts bytes)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l device -d 'Limit one GPU, named by its index in nvidia-smi or its uuid; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l total -d 'What TOTAL shows: the slice, or the device\'s own total (for flags that are percentages of the machine) [default: slice]' -r -f -a "slice\t'The slice\'s'
device\t'The device\'s own'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l present-as -d 'On unified memory, how the GPU presents itself: as uma, or as a discrete card, for programs that read /proc/meminfo of an integrated one [default: uma]' -r -f -a "uma\t'An integrated device'
discrete\t'A discrete one'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l headroom -d 'Report this much less than the limit, or, with "learned", the largest shortfall of earlier runs of this --name with the same option' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l reserve -d 'On unified memory, what the host keeps for itself [default: by the machine\'s size]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l host-allowance -d 'On unified memory, how much host memory of the slice\'s processes is not charged to it [default: 4GiB]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l managed -d 'Managed memory (cuMemAllocManaged): count it at the call, or allow any amount, for programs that oversubscribe on purpose; it is then neither counted nor limited [default: count]' -r -f -a "count\t'Counted at the call'
allow\t'Neither counted nor limited'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l pressure -d 'On unified memory, what happens when the host runs short: refuse what would go below the reserve, or before that let PyTorch and malloc release what they only keep [default: refuse]' -r -f -a "refuse\t'Refuses'
release\t'Asks for what is only kept'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l threshold -d 'When the host counts as short of memory; may be repeated. full: percent of time in which everything waits for memory; available: memory that is left; request: the largest request that is still granted then; used: percent of the slice; freed: the least memory that is worth releasing' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l page-cache -d 'What becomes of model files\' pages in the page cache: they stay, go when the file is closed and unmapped, or go while it is loaded [default: drop on unified memory, else keep]' -r -f -a "keep\t'They stay'
drop\t'They go at the end'
drop-behind\t'They go while the file is loaded'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l name -d 'What logs and lists call the slice [default: run-PID]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l config -d 'Read the slice from this file [env: GPUSLICE_CONFIG]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l sim -d 'Run on a simulated machine: rtx3090, h200, h200-mig, gb10, gb10-nvml-answers, orin, thor, n1x, several (2xh200, rtx3090+h200) or a scenario file (machine.toml)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l log -d 'Let the preloaded library say what it does: warn, info or debug [env: GPUSLICE_LOG]' -r -f -a "warn\t''
info\t''
debug\t''"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l log-file -d 'Append that to a file instead of standard error [env: GPUSLICE_LOG_FILE]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l slice -d 'Take the slice NAME from ~/.config/gpuslice/slices.toml or /etc/gpuslice/slices.toml, and its command where none is given: gpuslice-slices(5)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l file -d 'Take it from this file' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l on-refusal -d 'Run this shell command when allocations of the slice are refused: at the 1st, the 10th, the 100th ... of them. GPUSLICE_EVENT_MESSAGE and other variables describe the refusal' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l page-cache-share -d 'Tell other slices, by locks on a model\'s file, which of its bytes are still needed, and drop none that they need'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l overcommit -d 'Start even if other slices leave no room for this one on a GPU (or on the host, on unified memory). FREE is then the memory that is left, and allocations can be refused below the limit'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l no-enforce -d 'Only count: nothing is refused, and `gpuslice status` shows what is over the limit'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l bare -d 'No slice and no preload at all, for comparisons'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l strict -d 'Refuse to start a program where the slice does not hold: the program is static, 32-bit, set-user-ID or not loaded by glibc, sees a GPU without a limit, or there is no place for a ledger. Without it, a warning says so'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -l dry-run -d 'Print what would be written, set and started, and the warnings or the refusal, without doing it. The driver is queried. The exit status is that of the start'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand run" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l memory -d 'Limit every GPU to this much memory: 24GiB or 24576MiB (24Gi, 24G and 24GB are 24GiB; a number without a unit counts bytes)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l device -d 'Limit one GPU, named by its index in nvidia-smi or its uuid; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l total -d 'What TOTAL shows: the slice, or the device\'s own total (for flags that are percentages of the machine) [default: slice]' -r -f -a "slice\t'The slice\'s'
device\t'The device\'s own'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l present-as -d 'On unified memory, how the GPU presents itself: as uma, or as a discrete card, for programs that read /proc/meminfo of an integrated one [default: uma]' -r -f -a "uma\t'An integrated device'
discrete\t'A discrete one'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l headroom -d 'Report this much less than the limit, or, with "learned", the largest shortfall of earlier runs of this --name with the same option' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l reserve -d 'On unified memory, what the host keeps for itself [default: by the machine\'s size]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l host-allowance -d 'On unified memory, how much host memory of the slice\'s processes is not charged to it [default: 4GiB]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l managed -d 'Managed memory (cuMemAllocManaged): count it at the call, or allow any amount, for programs that oversubscribe on purpose; it is then neither counted nor limited [default: count]' -r -f -a "count\t'Counted at the call'
allow\t'Neither counted nor limited'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l pressure -d 'On unified memory, what happens when the host runs short: refuse what would go below the reserve, or before that let PyTorch and malloc release what they only keep [default: refuse]' -r -f -a "refuse\t'Refuses'
release\t'Asks for what is only kept'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l threshold -d 'When the host counts as short of memory; may be repeated. full: percent of time in which everything waits for memory; available: memory that is left; request: the largest request that is still granted then; used: percent of the slice; freed: the least memory that is worth releasing' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l page-cache -d 'What becomes of model files\' pages in the page cache: they stay, go when the file is closed and unmapped, or go while it is loaded [default: drop on unified memory, else keep]' -r -f -a "keep\t'They stay'
drop\t'They go at the end'
drop-behind\t'They go while the file is loaded'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l name -d 'What logs and lists call the slice [default: run-PID]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l config -d 'Read the slice from this file [env: GPUSLICE_CONFIG]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l sim -d 'Run on a simulated machine: rtx3090, h200, h200-mig, gb10, gb10-nvml-answers, orin, thor, n1x, several (2xh200, rtx3090+h200) or a scenario file (machine.toml)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l log -d 'Let the preloaded library say what it does: warn, info or debug [env: GPUSLICE_LOG]' -r -f -a "warn\t''
info\t''
debug\t''"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l log-file -d 'Append that to a file instead of standard error [env: GPUSLICE_LOG_FILE]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l timeout -d 'Seconds that one route may take [default: 120 for the first, which may have to load the driver; for the others three times as long as the first took, and at least 10]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l page-cache-share -d 'Tell other slices, by locks on a model\'s file, which of its bytes are still needed, and drop none that they need'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l overcommit -d 'Start even if other slices leave no room for this one on a GPU (or on the host, on unified memory). FREE is then the memory that is left, and allocations can be refused below the limit'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l no-enforce -d 'Only count: nothing is refused, and `gpuslice status` shows what is over the limit'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l bare -d 'No slice and no preload at all, for comparisons'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -l json -d 'Print JSON for programs instead of a table'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -s v -l verbose -d 'List every function and route with its answer'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -l root -d 'The hook\'s folders are below this one (for tests)' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -l processes -d 'Also show each process that holds memory'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -l watch -d 'Refresh every second, until ^C'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -l json -d 'Print JSON; with --watch, one line each second'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand status" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand top" -l interval -d 'The seconds between two refreshes, from 0.25 to 60' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand top" -l root -d 'The hook\'s folders are below this one (for tests)' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand top" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand doctor" -l root -d 'The host\'s files are below this folder (for tests)' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand doctor" -l node -d 'Only this node: what slices need before any program starts'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand doctor" -l json -d 'Print JSON'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand report" -l for -d 'Measure for so many seconds, and print once at the end' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand report" -l every -d 'Seconds between two measurements' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand report" -l plot -d 'Draw the memory over time to an SVG file, with --watch or --for' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand report" -l watch -d 'Refresh at the interval of --every, until ^C'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand report" -l json -d 'Print JSON; with --watch, one line each time'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand report" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand metrics" -l output -d 'Write to this file, which is replaced as a whole' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand metrics" -l format -d 'The format: prometheus, the text format 0.0.4, or openmetrics, version 1.0' -r -f -a "prometheus\t'The text format 0.0.4 of Prometheus'
openmetrics\t'`OpenMetrics` 1.0'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand metrics" -l compatible -d 'Repeat numbers under the names of another exporter: hami, gpu-sharing' -r -f -a "hami\t'`HAMi`'
gpu-sharing\t'NVIDIA\'s gpu-sharing operator'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand metrics" -l root -d 'The hook\'s folders are below this one (for tests)' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand metrics" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand plan" -l sim -d 'Plan for a simulated machine: gb10, 2xh200 or another of gpuslice run --sim' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand plan" -l json -d 'Print JSON for programs'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand plan" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand env" -l file -d 'Take the slice from this file' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand env" -l format -d 'Print export lines for a shell, lines for Slurm\'s TaskProlog, or JSON with the env of a Jupyter kernel [default: shell]' -r -f -a "shell\t'`export NAME=\'value\'`, for `eval` in a POSIX shell'
slurm\t'`export NAME=value`, as Slurm reads the output of a TaskProlog'
json\t'JSON, whose `env` is that of Jupyter\'s kernel.json'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand env" -l owner -d 'The process whose end ends the slice [default: the shell that calls; with --format slurm, the slurmstepd above]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand env" -l sim -d 'Make it on a simulated machine' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand env" -l overcommit -d 'Make the slice even if other slices leave no room for it'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand env" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand events" -l since -d 'Only events since then: 30s, 10min, 1h, 2d ago, or a time (2026-11-23T08:00:00Z)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand events" -l follow -d 'Print the last 10 events, or those of --since, and then each new one, until ^C'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand events" -l json -d 'Print JSON: one line for each event'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand events" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand history" -l since -d 'Only what still ran then: 30s, 10min, 1h, 2d ago, or a time (2026-11-23T08:00:00Z)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand history" -l plot -d 'Draw the used memory and the limit over time to an SVG file: the last run of each slice, or with --since every run' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand history" -l json -d 'Print JSON, with NAME also the use of memory over time'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand history" -s h -l help -d 'Print help'
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
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -l write -d 'Write the list of GPUs for the OCI hook, instead of printing it' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -l sim -d 'The GPUs of a simulated machine, as in `gpuslice run`' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -l json -d 'Print JSON'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand devices" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand gc" -l root -d 'The hook\'s folders are below this one (for tests)' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand gc" -l force -d 'Remove records of slices, too, that cannot be read, where nothing says that their container lives'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand gc" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and not __fish_seen_subcommand_from generate" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and not __fish_seen_subcommand_from generate" -f -a "generate" -d 'Write a CDI device for each size of slice, for podman run --device gpuslice.io/slice=24gib'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and __fish_seen_subcommand_from generate" -l output -d 'Write to a file instead of standard output [without FILE: /etc/cdi/gpuslice.yaml]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and __fish_seen_subcommand_from generate" -l format -d 'yaml or json [default: json for a file named *.json, else yaml]' -r -f -a "yaml\t'YAML'
json\t'JSON'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and __fish_seen_subcommand_from generate" -l size -d 'A size; may be given several times [default: every whole GiB that the largest GPU has]' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and __fish_seen_subcommand_from generate" -l hook -d 'The hook\'s executable [default: gpuslice-hook beside gpuslice]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and __fish_seen_subcommand_from generate" -l sim -d 'For the GPUs of a simulated machine, as in `gpuslice run`' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand cdi; and __fish_seen_subcommand_from generate" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and not __fish_seen_subcommand_from configure" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and not __fish_seen_subcommand_from configure" -f -a "configure" -d 'Configure a container engine to give its containers slices'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l runtime -d 'The engine' -r -f -a "docker\t'Docker Engine'
containerd\t'containerd, for Kubernetes'
crio\t'CRI-O'
podman\t'podman'
nvidia\t'nvidia-container-runtime, below which gpuslice-runtime is put'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l by -d 'How containers get slices: by a hook, or by gpuslice-runtime in place of the engine\'s runtime' -r -f -a "hooks\t'The engine runs gpuslice-hook'
runtime\t'The engine runs gpuslice-runtime, which runs the real one'"
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l config -d 'The engine\'s configuration file [default: the file that the engine reads]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l hooks-dir -d 'podman, CRI-O: the folder for the hook\'s files' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l size -d 'docker: also add a runtime for this size (gpuslice-8gib), for a Docker without annotations; may be repeated' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l hook -d 'The hook\'s executable [default: gpuslice-hook beside gpuslice]' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l always -d 'podman, CRI-O: run the hook for every container, not only for those with an annotation'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l set-as-default -d 'Make gpuslice the default runtime'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l remove -d 'Revert an earlier call'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -l dry-run -d 'Show the changes and their result, and change nothing'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand runtime; and __fish_seen_subcommand_from configure" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand driver-limit" -l cgroup -d 'Absolute path of the cgroup\'s folder; it must be the leaf in which the processes run' -r -F
complete -c gpuslice -n "__fish_gpuslice_using_subcommand driver-limit" -l device -d 'Uuid of the GPU; the driver cannot limit MIG instances' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand driver-limit" -l memory -d 'Hard limit: device memory that the cgroup\'s processes may hold together' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand driver-limit" -l guarantee -d 'Soft limit: device memory that the driver guarantees to the cgroup (see NOTES)' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand driver-limit" -l sim -d 'The GPU is a simulated machine\'s, as in `gpuslice run`' -r
complete -c gpuslice -n "__fish_gpuslice_using_subcommand driver-limit" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand completions" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand man" -s h -l help -d 'Print help'
complete -c gpuslice -n "__fish_gpuslice_using_subcommand help" -s h -l help -d 'Print help'
complete -c gpuslice -f -a '(__gpuslice_complete)'
complete -c gpusliced -f -a '(__gpuslice_complete)'
