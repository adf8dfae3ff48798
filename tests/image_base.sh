#!/usr/bin/env bash
# A stand-in for the image's base, where no registry is reached: Debian's own Python, made with debootstrap (as root).
#   tests/image_base.sh [NAME]
# IMAGE_BASE_CACHE is the folder that keeps its files, so that they are made once (default: ~/.cache/dflash-image).
set -euo pipefail

name=${1:-localhost/dflash-base:ci}
cache=${IMAGE_BASE_CACHE:-$HOME/.cache/dflash-image}
suite=bookworm
base=$cache/$suite.tar
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}

if ! [ -e "$base" ]; then
    echo "making $base with debootstrap: one to three minutes" >&2
    mkdir -p "$cache"
    aside=$(mktemp -d "$cache/.making-XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    debootstrap --variant=minbase --include=ca-certificates,python3 "$suite" "$aside/root" >"$aside/log" 2>&1 \
        || { tail -n 20 "$aside/log" >&2; exit 1; }
    # What debootstrap leaves of this machine and of this day.
    rm -rf "$aside"/root/{etc/hostname,etc/resolv.conf,var/cache/apt/archives/*.deb,var/lib/apt/lists/*,var/log/*}
    rm "$aside/root/etc/ssl/certs/ca-certificates.crt" # the one of the machine that uses it comes in its place
    tar -C "$aside/root" --sort=name --numeric-owner --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' \
        -cf "$aside/root.tar" .
    mv "$aside/root.tar" "$base"
fi

# The authorities that this machine trusts, so that a package index behind one of its own is reached from a build too.
mark=$(cat "$base" "$certificates" | sha256sum | cut -c 1-64)
if [ "$(podman image inspect --format '{{index .Labels "made.from"}}' "$name" 2>/dev/null)" != "$mark" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work" "${aside:-}"' EXIT
    cp "$base" "$work/root.tar"
    mkdir -p "$work/etc/ssl/certs"
    cp "$certificates" "$work/etc/ssl/certs/ca-certificates.crt"
    tar -C "$work" --append --numeric-owner --owner=0 --group=0 -f "$work/root.tar" ./etc/ssl/certs/ca-certificates.crt
    podman import --quiet --change "LABEL made.from=$mark" "$work/root.tar" "$name" >/dev/null
fi
echo "$name"
