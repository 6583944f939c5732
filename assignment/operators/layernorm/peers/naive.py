"""PyTorch's own words for it, one operation after the other."""


def layernorm_forward(x, weight, bias, eps=1e-5):
    mean = x.float().mean(-1)
    differences = x - mean[:, None]
    rstd = (differences.square().mean(-1) + eps).rsqrt()
    return (differences * rstd[:, None] * weight + bias).to(x.dtype), mean, rstd


def layernorm_backward(grad_y, x, weight, mean, rstd):
    x_hat, h = (x - mean[:, None]) * rstd[:, None], grad_y.float() * weight
    grad_x = rstd[:, None] * (h - h.mean(-1, keepdim=True) - x_hat * (h * x_hat).mean(-1, keepdim=True))
    grad_weight, grad_bias = (grad_y * x_hat).sum(0), grad_y.float().sum(0)
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype), grad_bias.to(weight.dtype)
