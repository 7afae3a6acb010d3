# Every device keeps the contract of the trait, and a volume on it is found again.
for device in "$zns" "$flash" "$smr" "$generic"; do
    echo "$device"
    POLDER_TEST_DEVICE=$device zone-tests --test-threads=1 --nocapture medium::
done
