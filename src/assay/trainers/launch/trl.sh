START=("$PYTHON")
if [ "$WORLD" -gt 1 ]; then
  START=("$PYTHON" -m torch.distributed.run --nnodes "$NODES" --node_rank "$RANK" --nproc_per_node "$EACH"
    --master_addr "$MASTER" --master_port "${PORT:-29500}")
fi
exec "${START[@]}" trl_log.py {VERB} --config config.yaml "${MORE[@]}"
