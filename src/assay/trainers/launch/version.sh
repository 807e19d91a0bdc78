HAS=$("$PYTHON" -c 'from importlib.metadata import version; print(version("{NAME}"))' 2> /dev/null) || HAS=none
if [ "$HAS" != "{VERSION}" ] && [ -z "${UNTESTED:-}" ]; then
  echo "run.sh: tested with {NAME} {VERSION}, and $PYTHON has $HAS: name another PYTHON, or set UNTESTED=1" >&2
  exit 2
fi
