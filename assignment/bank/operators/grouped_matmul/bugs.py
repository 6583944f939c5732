"""Products in groups that are wrong, each a few edits away from the plain ones in base/."""

from assignment.bank.operators.edits import table

PROBLEM = "grouped_matmul"
FILES = ("practice/grouped_matmul.py",)
PARTS = {
    "DOT": "total = tl.dot(x, weight, total)",
    "SUM": "summed = tl.dot(x, grad_y, summed)",
    "TOTAL": "    summed = tl.zeros(",
    "GRID": "grid = (triton.cdiv(most, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE), experts)",
    "EXPERT": "expert = tl.program_id(2).to(tl.int64)",
    "BEGIN": "begin = tl.load(offsets_ptr + expert).to(tl.int64)⏎    rows",
    "MASK": "row_mask = rows[:, None] < begin + size",
    "OFFSETS": "return sizes, torch.cumsum(sizes, 0) - sizes",
    "WEIGHT": "weight_ptr + expert * stride_we + terms[:, None] * stride_wk",
    "RETURN": "    _multiply(x, weight, group_sizes, y)⏎    return y",
}
BUGS = [
    *table(
        "forward",
        """
groups begin where they end | test_values | {OFFSETS} → return sizes, torch.cumsum(sizes, 0) |
    line: x = tl.load(
sizes taken for offsets | test_groups | {OFFSETS} → return sizes, sizes | sizes-for-offsets / race: / x = tl.load(
the last group lost | test_values | {GRID}⏎        _grouped → grid = (triton.cdiv(most, M_TILE_SIZE),
    triton.cdiv(n, N_TILE_SIZE), max(experts - 1, 1))⏎        _grouped | a-group-left-out
the weight of the next expert | test_values | {WEIGHT} → weight_ptr + (expert + 1) % tl.num_programs(2) *
    stride_we + terms[:, None] * stride_wk | another-experts-weight
the first expert's weight for all | test_values | {WEIGHT} → weight_ptr + terms[:, None] * stride_wk |
    one-expert-for-all / misread: weight is read from the first entry of the batch in all
a tile that crosses a group | test_groups | {MASK} → row_mask = rows[:, None] < tokens | line: tl.store(y_ptrs
a group's last rows left out | test_groups | if first >= size: → if first + M_TILE_SIZE > size: |
    whole-tiles-alone
rows behind the last group are the last expert's | test_behind | most = max( →
    sizes = sizes + sizes.new_zeros(experts).index_fill(0, offsets.argmax(), x.shape[0] -
    int(sizes.sum()))⏎    most = max( | rows-behind
rows behind the last group unwritten | test_behind | y = torch.zeros( → y = torch.empty( | line: never stored
the last terms left out | test_ragged | for start in range(0, k, K_TILE_SIZE): →
    for start in range(0, k // K_TILE_SIZE * K_TILE_SIZE, K_TILE_SIZE): | some-terms-of-a-product
a sum in 16 bits | test_16_bit | {DOT} → total = tl.dot(x, weight, total).to(x_ptr.dtype.element_ty).to(tl.float32) |
    products-summed-in-16-bits
factors in bfloat16 | test_precision | {DOT} → total = tl.dot(x.to(tl.bfloat16), weight.to(tl.bfloat16), total) |
    matrices-in-16-bits
weight's last stride taken to be 1 | test_strides | stride_wk + cols[None, :] * stride_wn, → stride_wk +
    cols[None, :], | weight is read as if its last stride were 1 / weight = tl.load(
experts in int32 | test_offsets | {EXPERT} → expert = tl.program_id(2) | weight = tl.load(
sizes remembered by shape | test_contract | def _places(group_sizes): →
    _known = {}⏎⏎⏎def _places(group_sizes):⏎    key = len(group_sizes)⏎    if key not in _known:⏎        _known[key]
    = _placed(group_sizes)⏎    return _known[key]⏎⏎⏎def _placed(group_sizes): | -
no checks | test_mistakes |     _check(x, weight, group_sizes)⏎    y = →     y = | expected a ValueError
tiles of 16 | test_traffic | M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32 →
    M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 16, 16, 64 | is read
finished by PyTorch | test_values | {RETURN} → {RETURN} + 0 * (x @ weight[0]) | computed: return y + 0 * (x @ weight[0])
""",
        **PARTS,
    ),
    *table(
        "backward",
        """
the sum over all rows | values | end = begin + tl.load(sizes_ptr + expert) → begin = begin * 0⏎    last =
    tl.num_programs(2) - 1⏎    end = tl.load(offsets_ptr + last) + tl.load(sizes_ptr + last) |
    backward-sum-over-all-rows
rows of the group before added | groups | for start in range(begin, end, K_TILE_SIZE): →
    for start in range(begin // K_TILE_SIZE * K_TILE_SIZE, end, K_TILE_SIZE): | backward-tiles-of-two-groups
an empty group's weight gradient unwritten | empty | {TOTAL} →     if begin == end:⏎        return⏎{TOTAL} |
    line: never stored
the weight gradient of one tile of rows | values | for start in range(begin, end, K_TILE_SIZE): →
    for start in range(begin, begin + K_TILE_SIZE, K_TILE_SIZE): |
    backward-some-terms-of-a-product / backward-whole-tiles-alone
weight not transposed | values | _multiply(grad_y, weight.mT, group_sizes, grad_x) →
    _multiply(grad_y, weight.reshape(len(weight), n, k), group_sizes, grad_x) | backward-weight-transposed
a sum of grad_weight in 16 bits | 16_bit | {SUM} →
    summed = tl.dot(x, grad_y, summed).to(x_ptr.dtype.element_ty).to(tl.float32) | backward-products-summed-in-16-bits
""",
        **PARTS,
    ),
]
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "grouped_matmul": (
        "forward-a-tile-that-crosses-a-group",
        "forward-a-sum-in-16-bits",
        "backward-an-empty-group-s-weight-gradient-unwritten",
    ),
}
