#!/bin/sh
# A CNI plugin for tests. It appends each call to the file that its configuration names in `log`: a line with the command
# and the variables, and a line with the standard input. The directory of the log steers it by files:
#   fail-COMMAND    the text is printed as the error, and the plugin fails
#   hang-COMMAND    the plugin never ends, and a child of it neither
#   result          the text is printed as the result of ADD
if [ -z "${CNI_COMMAND-}" ]; then
    echo "CNI ${0##*/} plugin v9.8.7"
    echo "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
    exit 0
fi
input=$(cat)
log=$(printf '%s' "$input" | sed -n 's/.*"log":"\([^"]*\)".*/\1/p')
dir=${log%/*}
{
    echo "${0##*/} $CNI_COMMAND id=${CNI_CONTAINERID-} if=${CNI_IFNAME-} netns=${CNI_NETNS-} args=${CNI_ARGS-} env=$(env | cut -d= -f1 | sort | tr '\n' ',')"
    printf '%s\n' "$input"
} >> "$log"
if [ -e "$dir/hang-$CNI_COMMAND" ]; then
    sleep 3600 &
    echo $! > "$dir/hanging"
    sleep 3600
fi
if [ -e "$dir/fail-${0##*/}-$CNI_COMMAND" ]; then
    cat "$dir/fail-${0##*/}-$CNI_COMMAND"
    exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
    if [ -e "$dir/result" ]; then
        cat "$dir/result"
    else
        version=$(printf '%s' "$input" | sed -n 's/.*"cniVersion":"\([0-9.]*\)".*/\1/p')
        echo "{\"cniVersion\":\"$version\",\"interfaces\":[{\"name\":\"eth0\",\"sandbox\":\"$CNI_NETNS\"}],\"ips\":[{\"address\":\"10.99.0.7/24\",\"interface\":0}],\"by\":\"${0##*/}\"}"
    fi
fi
