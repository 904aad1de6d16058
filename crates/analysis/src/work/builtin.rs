//! The rules that come with Counterpoint.

/// Each line is a rule; see [`super`].
pub const RULES: &str = "\
# PyTorch. Products count as PyTorch's own FlopCounterMode counts them: a multiplication and an addition
# for each. Arguments are inputs only, so results are added to the bytes.
aten::mm                  [m, k], [k, n]              flop = 2*m*k*n; bytes = size*(m*k + k*n + m*n)
aten::addmm               [*c], [m, k], [k, n]        flop = 2*m*k*n; bytes = size*(c + m*k + k*n + m*n)
aten::bmm                 [b, m, k], [b, k, n]        flop = 2*b*m*k*n; bytes = size*b*(m*k + k*n + m*n)
aten::baddbmm             [*c], [b, m, k], [b, k, n]  flop = 2*b*m*k*n; bytes = size*(c + b*(m*k + k*n + m*n))
aten::mv                  [m, k], [k]                 flop = 2*m*k; bytes = size*(m*k + k + m)
aten::dot                 [k], [k]                    flop = 2*k; bytes = size*2*k
aten::_scaled_dot_product_flash_attention_for_cpu [b, h, s, d], [b, h, t, d], [b, h, t, e] flop = 2*b*h*s*t*(d + e); bytes = size*b*h*(s*d + t*d + t*e + s*e)
aten::_scaled_dot_product_flash_attention_for_cpu_backward [b, h, s, e], [b, h, s, d], [b, h, t, d], [b, h, t, e] flop = 2*b*h*s*t*(3*d + 2*e); bytes = arguments + size*b*h*(s*d + t*d + t*e)
aten::add                 flop = elements; bytes = arguments + size*elements
aten::add_                flop = elements; bytes = arguments + size*elements
aten::sub                 flop = elements; bytes = arguments + size*elements
aten::mul                 flop = elements; bytes = arguments + size*elements
aten::mul_                flop = elements; bytes = arguments + size*elements
aten::div                 flop = elements; bytes = arguments + size*elements
aten::relu                flop = elements; bytes = 2*arguments
aten::neg                 flop = elements; bytes = 2*arguments
aten::addcmul             flop = 3*elements; bytes = arguments + size*elements
aten::addcdiv             flop = 3*elements; bytes = arguments + size*elements
# An elementary function (exp, erf, tanh, a root) counts as one operation.
aten::exp                 flop = elements; bytes = 2*arguments
aten::tanh                flop = elements; bytes = 2*arguments
aten::sqrt                flop = elements; bytes = 2*arguments
aten::sigmoid             flop = 4*elements; bytes = 2*arguments
aten::silu                flop = 5*elements; bytes = 2*arguments
aten::gelu                flop = 5*elements; bytes = 2*arguments
# The maximum, a subtraction, exp, the sum and a division, for each element.
aten::_softmax            [*n]                        flop = 5*n; bytes = 2*size*n
# The mean (1), the variance (3), and x times a factor plus a summand, twice (4).
aten::native_layer_norm   [*n, d], [d], [d]           flop = 8*n*d; bytes = size*(2*n*d + 2*d)
aten::copy_               bytes = arguments
aten::*                   unknown

# TVM: arguments have the result at the end. What is fused with a product is small beside it and does not
# count.
# The result is the last argument, whatever is fused behind the convolution. Weights of groups fit no rule.
*conv2d*                  [n, c, h, w], [o, c, r, s]  flop = 2*last*c*r*s; bytes = arguments
*NT_matmul*               [*b, m, k], [n, k]          flop = 2*b*m*k*n; bytes = arguments
*matmul*                  [*b, m, k], [k, n]          flop = 2*b*m*k*n; bytes = arguments
*matmul*                  [*b, m, k], [*b, k, n]      flop = 2*b*m*k*n; bytes = arguments
*dense*                   [*b, m, k], [n, k]          flop = 2*b*m*k*n; bytes = arguments
*layer_norm*              [*n, d], [d], [d], [*n, d]  flop = 8*n*d; bytes = arguments
*softmax*                 [*n], [*n]                  flop = 5*n; bytes = arguments
add                       [*], [*], [*]               flop = last; bytes = arguments
add?                      [*], [*], [*]               flop = last; bytes = arguments
add??                     [*], [*], [*]               flop = last; bytes = arguments
multiply                  [*], [*], [*]               flop = last; bytes = arguments
multiply?                 [*], [*], [*]               flop = last; bytes = arguments
multiply??                [*], [*], [*]               flop = last; bytes = arguments
subtract                  [*], [*], [*]               flop = last; bytes = arguments
subtract?                 [*], [*], [*]               flop = last; bytes = arguments
subtract??                [*], [*], [*]               flop = last; bytes = arguments
divide                    [*], [*], [*]               flop = last; bytes = arguments
divide?                   [*], [*], [*]               flop = last; bytes = arguments
divide??                  [*], [*], [*]               flop = last; bytes = arguments
relu                      [*n], [*n]                  flop = n; bytes = arguments
relu?                     [*n], [*n]                  flop = n; bytes = arguments
relu??                    [*n], [*n]                  flop = n; bytes = arguments

# IREE: the name of a dispatch has the loops of its largest op, with their sizes.
*_batch_matmul_*          bxmxnxk                     flop = 2*b*m*n*k; bytes = size*b*(m*k + k*n + m*n)
*_matmul_*                mxnxk                       flop = 2*m*n*k; bytes = size*(m*k + k*n + m*n)
*_matmul_transpose_b_*    mxnxk                       flop = 2*m*n*k; bytes = size*(m*k + k*n + m*n)
*_matvec_*                mxk                         flop = 2*m*k; bytes = size*(m*k + k + m)
*_softmax_*               mxn                         flop = 5*m*n; bytes = 2*size*m*n
*_softmax_*               bxmxn                       flop = 5*b*m*n; bytes = 2*size*b*m*n
";
