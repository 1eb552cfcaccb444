"""``vreplica completion``: print the script with which a shell, or kubectl, completes our
commands.
"""

import argparse
from typing import Final

from extender.cli.terminal.parsing import Commands

_BASH: Final = r"""# bash completion of vreplica:  source <(vreplica completion bash)
_vreplica() {
    local line directive="" IFS=$'\n'
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=$line ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # Bash completes what stands behind the last = alone.
    local typed=${COMP_WORDS[COMP_CWORD]} index
    if [[ $typed == "=" || ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
        for index in "${!COMPREPLY[@]}"; do COMPREPLY[index]=${COMPREPLY[index]#*=}; done
    fi
    if [[ $directive == ":0" ]]; then
        compopt -o default 2>/dev/null
    else
        compopt +o default 2>/dev/null
    fi
}
complete -o default -F _vreplica vreplica kubectl-vreplica
"""

_ZSH: Final = r"""#compdef vreplica kubectl-vreplica
# zsh completion of vreplica:  source <(vreplica completion zsh), or as _vreplica in a folder of
# $fpath
_vreplica() {
    local -a lines found
    local line directive
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        if [[ $line == :[0-9]* ]]; then
            directive=$line
        elif [[ -n $line ]]; then
            line=${line//:/\\:}
            found+=("${line/$'\t'/:}")
        fi
    done
    (( $#found )) && _describe vreplica found
    if [[ $directive == ":0" ]]; then _files; fi
}
if [[ $funcstack[1] == _vreplica ]]; then
    _vreplica "$@"
else
    compdef _vreplica vreplica kubectl-vreplica
fi
"""

_FISH: Final = r"""# fish completion of vreplica:  vreplica completion fish | source
function __vreplica_complete
    set -l words (commandline -opc)
    $words[1] __complete $words[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null
end
function __vreplica_words
    __vreplica_complete | string match --invert --regex '^:[0-9]+$'
end
function __vreplica_files
    __vreplica_complete | string match --quiet ':0'
end
for name in vreplica kubectl-vreplica
    complete --command $name --no-files --arguments '(__vreplica_words)'
    complete --command $name --condition __vreplica_files --force-files
end
"""

_KUBECTL: Final = """#!/bin/sh
# Completion of `kubectl vreplica`: put this as an executable kubectl_complete-vreplica into a
# folder of $PATH.
exec kubectl-vreplica __complete "$@"
"""

SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "kubectl": _KUBECTL}


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    completion = commands.add_parser(
        "completion",
        help="print the completion of a shell, or of kubectl",
        description="Print a script: for a shell, to be sourced; for kubectl, to be "
        "kubectl_complete-vreplica in $PATH.",
    )
    completion.add_argument(
        "shell", metavar="SHELL", choices=sorted(SCRIPTS), help=", ".join(sorted(SCRIPTS))
    )
    completion.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    print(SCRIPTS[options.shell], end="")
    return 0
