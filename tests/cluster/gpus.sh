#!/usr/bin/env bash
# Gives the machine idle simulated GPUs. Usage: gpus.sh GPUS
set -euo pipefail
find /mnt/sim -mindepth 1 -delete
umask 0
/mnt/build/sim/gpuslice-sim --state /mnt/sim start "$1"
chmod 666 /mnt/sim/*
