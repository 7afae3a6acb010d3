# Every device keeps the contract of the trait, and a volume on it is found again.
for device in "$zns" "$flash" "$smr" "$generic"; do
    echo "$device"
    POLDER_TEST_DEVICE=$device zone-tests --test-threads=1 --nocapture medium:: > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
    cat /tmp/said
    grep -q '^test result: ok. [1-9][0-9]* passed' /tmp/said
    if grep skipped /tmp/said; then exit 1; fi
done
