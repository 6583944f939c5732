"""PyTorch's own words for it, one operation after the other."""


def weighted_sum_forward(x, weight):
    return (x * weight).sum(-1)


def weighted_sum_backward(grad_y, x, weight):
    return grad_y[:, None] * weight, (grad_y[:, None] * x).sum(0)
