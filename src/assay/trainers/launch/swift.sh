if [ "$WORLD" -gt 1 ]; then
  export NPROC_PER_NODE=$EACH NNODES=$NODES NODE_RANK=$RANK MASTER_ADDR=$MASTER MASTER_PORT=${PORT:-29500}
fi
exec "$PYTHON" -m swift.cli.main {VERB} config.yaml "${MORE[@]}"
