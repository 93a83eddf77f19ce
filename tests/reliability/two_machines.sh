#!/usr/bin/env bash
# Train on two "machines", which are network namespaces with a cable between them, and compare the weights.
#
#     sudo tests/reliability/two_machines.sh       # Linux, root, iproute2; a few minutes
#
# 1. Two ranks have the weights of one process.     2. Two ranks have them again, bit for bit.
# 3. A rank is killed with `kill -9`: torchrun starts both again, and they end with the same weights, bit for bit.
# 4. The bytes that a step sends through the cable are counted, with and without train.accumulate.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
python=${PYTHON:-python3}
export PYTHONPATH=$PWD OMP_NUM_THREADS=1 NMT_CACHE=$folder/cache
first=nmt-a-$$ second=nmt-b-$$ # the namespaces; the ends of the cable are called `cable` in both

clean_up() {
  ip netns delete "$first"
  ip netns delete "$second"
  rm -rf "$folder"
}
trap clean_up EXIT
ip netns add "$first"
ip netns add "$second"
ip link add cable netns "$first" type veth peer name cable netns "$second"
ip -n "$first" address add 10.77.0.1/24 dev cable
ip -n "$second" address add 10.77.0.2/24 dev cable
for namespace in "$first" "$second"; do
  ip -n "$namespace" link set lo up
  ip -n "$namespace" link set cable up
done

settings="configs/demo.yaml model.d_model=128 model.d_ff=512 train.batch_tokens=1536 train.precision=fp32 train.warmup=10
  train.validate_every=10"

# rank NAMESPACE ADDRESS RUN STEPS [SETTING ...]: start torchrun on one machine. Its log is $folder/log.NAMESPACE.
rank() {
  local namespace=$1 address=$2 run=$3 steps=$4 is_host=false
  shift 4
  if [ "$namespace" = "$first" ]; then is_host=true; fi
  GLOO_SOCKET_IFNAME=cable ip netns exec "$namespace" "$python" -m torch.distributed.run \
    --nnodes 2 --nproc-per-node 1 --max-restarts 3 --local-addr "$address" --rdzv-id "$run" \
    --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29400 --rdzv-conf is_host=$is_host \
    "${program[@]}" train $settings run="$folder/$run" train.max_steps="$steps" "$@" > "$folder/log.$namespace" 2>&1
}

# on_two_machines RUN STEPS [SETTING ...]: train with a rank on each machine.
on_two_machines() {
  rank "$first" 10.77.0.1 "$@" &
  local agent=$!
  rank "$second" 10.77.0.2 "$@" || { tail -n 30 "$folder"/log.*; exit 1; }
  wait "$agent"
}

# difference RUN RUN: print the largest difference of a weight.
difference() {
  "$python" - "$folder/$1/model.safetensors" "$folder/$2/model.safetensors" <<'PYTHON'
import sys

from safetensors.numpy import load_file

first, second = map(load_file, sys.argv[1:])
assert first.keys() == second.keys()
differences = {name: abs(first[name].astype(float) - second[name]).max() for name in first if name.startswith("model.")}
print(max(differences.values()))
PYTHON
}

sent() { ip netns exec "$first" cat /sys/class/net/cable/statistics/tx_bytes; }

# 1. In float64 and without dropout, because rounding would be amplified: Adam divides a gradient by its own size.
cat > "$folder/float64.py" <<'PYTHON'
import torch

from nmt.__main__ import main

torch.set_default_dtype(torch.float64)
main()
PYTHON
program=("$folder/float64.py")
"$python" "${program[@]}" train $settings model.dropout=0 train.max_steps=20 run="$folder/one64" --replicas 1 2> "$folder/log"
on_two_machines two64 20 model.dropout=0
echo "1. float64, 20 steps: largest difference of a weight to one process $(difference one64 two64)"

# 2. From here on as it is used: float32, with dropout. Validations send little, so they are counted with the steps.
program=(-m nmt)
on_two_machines two 40
on_two_machines again 40
echo "2. float32, 40 steps: largest difference of two runs $(difference two again)"

# 3. Kill the rank of the second machine after the second checkpoint.
on_two_machines killed 40 &
training=$!
until [ -e "$folder/killed/checkpoints/step-20.safetensors" ]; do sleep 0.1; done
sleep 0.5
kill -KILL "$(ip netns pids "$second" | tail -n 1)" # the last that was started
wait "$training"
grep -o "going on from step [0-9]*" "$folder/log.$first"
echo "3. killed: largest difference to the run that was not killed $(difference two killed)"

# 4. Bytes. Starting and joining sends some, too: the difference of two lengths leaves the steps.
for accumulate in 1 4; do
  before=$(sent)
  on_two_machines "short$accumulate" 10 train.accumulate=$accumulate train.validate_every=1000
  between=$(sent)
  on_two_machines "long$accumulate" 30 train.accumulate=$accumulate train.validate_every=1000
  echo "4. train.accumulate=$accumulate: each machine sends $((($(sent) - 2 * between + before) / 20)) bytes a step"
done
