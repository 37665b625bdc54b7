#!/bin/sh
# Runs every check and says how many failed.
failed=0
check() {
    got=$(printf '%s\n' "$2" | sh ./cart.sh)
    if [ "$got" = "$3" ]; then
        echo "ok: $1"
    else
        echo "FAILED: $1: expected $3, got $got"
        failed=$((failed + 1))
    fi
}
check "one thing" "pen 1 150" 150
check "nine pieces, no discount" "pen 9 100" 900
check "ten pieces, 10 % off" "pen 10 100" 900
check "twenty pieces, 10 % off" "pen 20 100" 1800
echo "$failed failed"
[ "$failed" -eq 0 ]
