# What the emulated devices have counted by themselves, and what Polder has.

# Asks whoever runs the emulated machine, `ask traffic 1` for its first namespace; the answer is a line of NAME=NUMBER.
ask() {
    echo "vm: ask $*" > /dev/console
    read -r answer < /dev/ttyS0
    echo "$answer"
}

# A number of an answer, by its name.
of() { echo " $1 " | sed -n "s/.* $2=\([0-9]*\) .*/\1/p"; }

# Bytes that were written to some namespaces.
written_to() {
    sum=0
    for number; do sum=$((sum + $(of "$(ask traffic "$number")" written_bytes))); done
    echo $sum
}

# A number of `polder stats`, by its name.
polder_counts() { polder stats --json /mnt | sed -n "s/^ *\"$1\": \([0-9]*\),*/\1/p" | head -n 1; }

# Sets `polder_bytes` and `device_bytes`: what was written to a namespace as Polder and as the emulator count it, when
# nobody writes.
count_both() {
    polder sync /mnt
    polder_bytes=none
    until [ "$(polder_counts device_bytes)" = "$polder_bytes" ]; do
        polder_bytes=$(polder_counts device_bytes)
        device_bytes=$(of "$(ask traffic "$1")" written_bytes)
    done
}

# Whether two numbers are a hundredth apart, or less.
are_close() { [ $((($1 - $2) * 100)) -le "$2" ] && [ $((($2 - $1) * 100)) -le "$2" ]; }

# A quotient with three digits behind the point.
ratio() { awk "BEGIN { printf \"%.3f\\n\", $1 / $2 }"; }
