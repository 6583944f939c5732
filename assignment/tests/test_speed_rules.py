"""What becomes of a timing, on a machine without a GPU: points, evidence and words."""

import types

import pytest
import torch

from assignment.grading import calls, score, speed
from assignment.timing import clock, roof, workloads

WORK = workloads.rmsnorm(65536, 4096, torch.bfloat16)
ATTENTION = workloads.attention(4096, 64, torch.bfloat16)
ROOF = roof.Roof(4e12, 8e14)


@pytest.fixture
def judge():
    session = types.SimpleNamespace(
        own_names={"norm_kernel", "_flash", "_flash_forward_gemm_softmax", "c", "void"}, roof=lambda _: ROOF
    )
    return speed.Speed(session)  # type: ignore[arg-type]


def raced(seconds, against, ratio):
    timing = clock.Timing(seconds, seconds, seconds, seconds, 0.1)
    return clock.Race({"submission": timing}, {against: (ratio, ratio, ratio)}, is_busy=False)


def test_a_copy_stands_for_the_bytes_that_must_move(judge):
    """weighted_sum_forward reads what a copy reads, and writes next to nothing: half the bytes"""
    work = workloads.weighted_sum(65536, 4096, torch.bfloat16)
    judge._judge(raced(140e-6, "copying", 1.9), work, torch.bfloat16, "copying", 0.8)
    assert judge.ratio == pytest.approx(0.95, rel=1e-3)
    assert judge.measured.startswith("0.95 × a copy (0.95–0.95; full points from 0.80): 140 µs a call, 3.8")
    assert judge.measured.endswith("96% of what this GPU reaches")


def test_who_is_slow_gets_the_share_that_was_reached(judge):
    with pytest.raises(speed.TooSlow, match=r"0\.50 × FlashAttention-2") as error:
        judge._judge(raced(2e-3, "flash2", 0.5), ATTENTION, torch.bfloat16, "flash2", 0.8)
    assert error.value.share == pytest.approx(0.625)


def test_what_no_gpu_can_do_is_refused(judge):
    least = ROOF.least_seconds(WORK.nbytes, WORK.operations)
    judge._refuse_impossible(raced(least / 1.2, "copying", 1.0).timings["submission"], WORK, torch.bfloat16)
    with pytest.raises(calls.SubmissionError, match="cannot be") as error:
        judge._refuse_impossible(raced(least / 1.3, "copying", 1.0).timings["submission"], WORK, torch.bfloat16)
    assert error.value.status == score.FAIL


LIBRARIES = [
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80",
]


@pytest.mark.parametrize("name", LIBRARIES)
def test_kernels_of_libraries_are_listed(judge, name):
    with pytest.raises(calls.SubmissionError, match="kernels of a library") as error:
        judge._refuse_libraries("flash_forward_triton", {"_flash": 100.0, name: 1.0})
    assert name in str(error.value)


OWN = {
    "its own": {"norm_kernel": 100.0, "Memset (Device)": 1.0},
    "its own, called like a library's": {"_flash_forward_gemm_softmax": 10.0},
    "a sum over partial gradients": {"norm_kernel": 90.0, "void at::native::reduce_kernel<128, 4>": 10.0},
    "a cast": {"norm_kernel": 90.0, "void at::native::vectorized_elementwise_kernel<8>": 10.0},
}


@pytest.mark.parametrize("launched", OWN.values(), ids=OWN)
def test_what_a_right_submission_launches_is_its_own(judge, launched):
    judge._refuse_libraries("rmsnorm_backward", launched)
    assert judge.doubts == []


@pytest.mark.parametrize(
    "launched",
    [
        {},
        {"void softmax_warp_forward": 9.0, "norm_kernel": 1.0},
        {"norm_kernel": 1.0, "void at::native::elementwise_kernel<128>": 9.0},
    ],
)
def test_who_spends_most_time_elsewhere_is_looked_at(judge, launched):
    judge._refuse_libraries("rmsnorm_backward", launched)
    assert "kernels of your own" in judge.doubts[0]


def test_names_are_those_of_functions():
    text = b"import x\n\n@triton.jit\ndef norm_kernel(x_ptr):\n    pass\n\n    def  _inner ():\n        undefined = 1\n"
    text += b"\n# def commented(): ...\ndef cudnn_generated_fort(): ...\ndef nvjet_tst(): ...\n"
    assert speed.own_names({"cs336_kernels/a.py": text, "cs336_kernels/b.py": b"def"}) == {"norm_kernel", "_inner"}
