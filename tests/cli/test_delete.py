"""What others refer to, or what was protected, no command deletes."""

from tests.cli.conftest import TinyLab, answer, assert_one_line, call


def test_a_measured_checkpoint_is_refused_and_an_unmeasured_one_goes(trained: TinyLab):
    (run,) = trained.root.glob("runs/tiny/*")
    assert_one_line(
        call("runs", "delete", "tiny@rl.last", "--lab", trained.root), "refers to", "rl/step-000004"
    )
    assert (run / "checkpoints/rl/step-000004/model.safetensors").exists()
    loose = run / "checkpoints/rl/step-000002"
    assert loose.exists()
    result = answer(call("runs", "delete", "tiny@rl.step-2", "--lab", trained.root, "--json"))
    assert result["result"]["deleted"] == str(loose)
    assert not loose.exists()


def test_a_protected_run_stays_and_an_unprotected_one_goes_with_its_records(trained: TinyLab):
    (run,) = trained.root.glob("runs/tiny/*")
    kept = call("runs", "protect", "tiny", "--why", "in the paper", "--lab", trained.root)
    assert kept.exit_code == 0
    assert_one_line(
        call("runs", "delete", "tiny", "--lab", trained.root), "protected", "in the paper"
    )
    assert run.exists()
    (run / "protected.json").unlink()
    assert call("runs", "delete", "tiny", "--lab", trained.root).exit_code == 0
    assert not run.exists()
    assert_one_line(call("runs", "delete", "tiny", "--lab", trained.root), "no run named 'tiny'")
