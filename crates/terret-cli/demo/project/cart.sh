#!/bin/sh
# Reads "name quantity price-in-cents" lines and prints the total in cents.
total=0
while read -r name quantity price; do
    sum=$((quantity * price))
    if [ "$quantity" -gt 10 ]; then
        sum=$((sum - sum / 10))
    fi
    total=$((total + sum))
done
echo "$total"
