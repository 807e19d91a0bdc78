"""Stand-in."""
import json
def make_manifest(session): return {}
def write_manifest(run, manifest): run.manifest.write_text(json.dumps(manifest))
def check_manifest(run, manifest): pass
