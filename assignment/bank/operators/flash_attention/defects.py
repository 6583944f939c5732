"""The yardstick: mistakes of real students, one at a time, in their own words, and the planted bug that each is.

All leave plain values right.
"""

DEFECTS = {
    "flash_forward_triton": {
        "tiles of 128 without a tail": "tiles-of-128-without-a-tail",
        "tail keys unmasked": "keys-past-the-end-unmasked",
        "no boundary check": "no-bounds-at-all",
        "floor grid": "query-grid-rounded-down",
        "d a power of two": "d-must-be-a-power-of-two",
        "contiguity asserted": "q-k-and-v-must-be-contiguous",
        "q's strides for k and v": "k-and-v-read-with-q-s-strides",
        "lse in 16 bits": "lse-in-the-input-s-dtype",
        "o always float32": "o-always-float32",
        "o cast too early": "accumulator-in-the-input-s-dtype",
        "P not cast": "p-in-float32-times-v-in-16-bits",
        "fp16 inside the dot": "q-and-k-multiplied-as-float16-whatever-the-input",
        "32-bit offsets": "batch-offsets-in-int32",
        "no causal skip": "causal-tiles-of-the-future-visited-for-nothing",
        "maximum starts at 0": "running-maximum-starts-at-0",
        "empty batch fails": "an-empty-batch-refused",
    },
    "flash_backward_triton": {
        "tiles of 128 without a tail": "tiles-of-128-without-a-tail",
        "tail keys unmasked": "keys-past-the-end-unmasked",
        "no boundary check": "no-bounds-at-all",
        "floor grid": "key-grid-rounded-down",
        "d a power of two": "d-must-be-a-power-of-two",
        "contiguity asserted": "the-inputs-must-be-contiguous",
        "q's strides for k and v": "k-and-v-read-with-q-s-strides",
        "another tensor's strides": "grad-o-read-with-o-s-strides",
        "lse in 16 bits": "lse-rounded-to-the-input-s-dtype",
        "D in 16 bits": "d-rounded-to-the-input-s-dtype",
        "gradients in float32": "all-gradients-in-float32",
        "P not cast": "p-in-float32-times-grad-o-in-16-bits",
        "fp16 inside the dot": "q-and-k-multiplied-as-float16-whatever-the-input",
        "32-bit offsets": "batch-offsets-in-int32",
        "no causal skip": "causal-tiles-of-the-past-visited-for-nothing",
        "empty batch fails": "an-empty-batch-refused",
    },
}
