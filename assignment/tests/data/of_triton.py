"""What is called or replaced of Triton, and what is not: for `python -m assignment.tests.upgrade`."""

# What is called or replaced, with its parameters, and the version since which it has these.
SIGNATURES = """
3.6 - (fn signature constexprs attrs): ASTSource
3.6 - (backend arch warp_size): GPUTarget
3.6 - (num param do_not_specialize do_not_specialize_on_alignment): KernelParam
3.6 - (base shape strides block_shape padding): TensorDescriptor
3.7 - (base shape strides block_shape padding round_f32_to_tf32): TensorDescriptor
3.6 - (src target options _env_vars): compile
3.6 - (sig kparams backend): create_function_from_signature
3.6 - (key): get_cache_manager
3.6 - (target): make_backend
3.6 - (arg specialize): mangle_type
3.6 ASTSource (target options codegen_fns module_map context): make_ir
3.6 Autotuner (kwargs): prune_configs
3.6 CodeGenerator (node): visit visit_Attribute
3.6 CUDABackend (options): get_codegen_implementation
3.6 CUDABackend (opts): parse_options
3.6 InterpreterBuilder (src dst_type): cast_impl create_bitcast create_fp_trunc create_int_to_ptr
    create_ptr_to_int
3.6 InterpreterBuilder (lhs rhs): create_add create_and create_ashr create_fadd create_fcmpOEQ create_fcmpOGE
    create_fcmpOGT create_fcmpOLE create_fcmpOLT create_fcmpONE create_fcmpUEQ create_fcmpUGE create_fcmpUGT
    create_fcmpULE create_fcmpULT create_fcmpUNE create_fdiv create_fmul create_frem create_fsub create_icmpEQ
    create_icmpNE create_icmpSGE create_icmpSGT create_icmpSLE create_icmpSLT create_icmpUGE create_icmpUGT
    create_icmpULE create_icmpULT create_lshr create_maximumf create_maxnumf create_maxsi create_maxui
    create_minimumf create_minnumf create_minsi create_minui create_mul create_or create_precise_divf
    create_sdiv create_shl create_srem create_sub create_udiv create_urem create_xor
3.9 InterpreterBuilder (lhs rhs): create_approx_divf
3.6 InterpreterBuilder (condition): create_assume
3.6 InterpreterBuilder (ptr cmp val sem scope): create_atomic_cas
3.9 InterpreterBuilder (ptr mask sem scope): create_atomic_load
3.9 InterpreterBuilder (ptr expected timeout_ns sem scope): create_atomic_poll
3.6 InterpreterBuilder (rmwOp ptr val mask sem scope): create_atomic_rmw
3.9 InterpreterBuilder (ptr val mask sem scope): create_atomic_store
3.6 InterpreterBuilder (): create_barrier
3.6 InterpreterBuilder (arg shape): create_broadcast
3.6 InterpreterBuilder (arg): create_ceil create_cos create_erf create_exp create_exp2 create_fabs
    create_floor create_iabs create_log create_log2 create_precise_sqrt create_rsqrt create_sin create_sqrt
3.6 InterpreterBuilder (arg lo hi propagate_nans): create_clampf
3.6 InterpreterBuilder (desc indices cache_modifier eviction_policy): create_descriptor_load
3.9 InterpreterBuilder (desc indices cache_policy): create_descriptor_load
3.6 InterpreterBuilder (a b d input_precision max_num_imprecise_acc): create_dot
3.8 InterpreterBuilder (lhs lhs_scale_handle lhs_format_enum rhs rhs_scale_handle rhs_format_enum fast_math
    lhs_k_pack rhs_k_pack acc_handle): create_dot_scaled
3.6 InterpreterBuilder (arg axis): create_expand_dims
3.6 InterpreterBuilder (libName libPath symbol argList retType isPure): create_extern_elementwise
3.6 InterpreterBuilder (x y z): create_fma
3.8 InterpreterBuilder (input): create_fneg
3.6 InterpreterBuilder (src dst_type rounding_mode): create_fp_to_fp
3.6 InterpreterBuilder (data bins mask): create_histogram
3.6 InterpreterBuilder (inlineAsm constraints values type isPure pack): create_inline_asm
3.6 InterpreterBuilder (ptr _0 _1 is_volatile): create_load
3.9 InterpreterBuilder (ptr cache_policy is_volatile): create_load
3.6 InterpreterBuilder (base shape strides tensor_shape is_signed padding): create_make_tensor_descriptor
3.6 InterpreterBuilder (ptrs mask other cache_modifier eviction_policy is_volatile): create_masked_load
3.9 InterpreterBuilder (ptrs mask other cache_policy is_volatile): create_masked_load
3.6 InterpreterBuilder (ptrs value mask cache_modifier eviction_policy): create_masked_store
3.9 InterpreterBuilder (ptrs value mask cache_policy): create_masked_store
3.6 InterpreterBuilder (prefix hex values isSigned): create_print
3.6 InterpreterBuilder (cond lhs rhs): create_select
3.6 InterpreterBuilder (ret_ty arg): create_splat
3.6 InterpreterBuilder (ptr val _0 _1): create_store
3.9 InterpreterBuilder (ptr val cache_policy): create_store
3.6 InterpreterBuilder (type): get_all_ones_value get_null_value
3.9 InterpreterBuilder (value): get_bf16
3.9 InterpreterBuilder (cache_modifier eviction_policy): get_cache_policy
3.6 InterpreterBuilder (value): get_fp16 get_int1
3.6 JITFunction (backend kwargs bound_args specialization options): _pack_args
3.6 JITFunction (): parse
3.6 TritonSemantic (lhs rhs allow_lhs_ptr allow_rhs_ptr arithmetic_check div_or_mod):
    binary_op_type_checking_impl
3.6 TritonSemantic (lhs rhs): broadcast_impl_value
3.6 TritonSemantic (input dst_ty fp_downcast_rounding): cast
3.6 TritonSemantic (lhs lhs_scale lhs_format rhs rhs_scale rhs_format acc fast_math lhs_k_pack rhs_k_pack
    out_dtype): dot_scaled
3.6 TritonSemantic (a_ty b_ty): integer_promote_impl
3.6 TritonSemantic (base shape strides block_shape padding_option): make_tensor_descriptor
3.6 TritonSemantic (input dims): permute
3.6 TritonSemantic (x check_type): to_tensor
"""

# methods of Triton's interpreter that ours has taken as they are, after a look at them
INHERITED = """
binary_op create_addptr create_advance create_assert create_cat create_descriptor_gather create_descriptor_scatter
create_descriptor_store create_fp_ext create_fp_to_si create_fp_to_ui create_gather create_get_num_programs
create_get_program_id create_idiv create_int_cast create_join create_make_block_ptr create_make_range create_reshape
create_si_to_fp create_split create_tensor_pointer_load create_tensor_pointer_store create_trans create_ui_to_fp
create_umulhi create_unsplat get_bf16_ty get_block_ty get_double_ty get_float_ty get_fp32 get_fp64 get_fp8e4b15_ty
get_fp8e4b8_ty get_fp8e4nv_ty get_fp8e5_ty get_fp8e5b16_ty get_half_ty get_int16 get_int16_ty get_int1_ty get_int32
get_int32_ty get_int64 get_int64_ty get_int8 get_int8_ty get_ptr_ty get_uint16 get_uint16_ty get_uint32
get_uint32_ty get_uint64 get_uint64_ty get_uint8 get_uint8_ty set_grid_dim set_grid_idx ternary_op unary_op
"""

# what the front end asks a builder for in functions that ours replaces, or that no simulated kernel reaches
UNREACHED = """
create_block_with_parent create_grid_dependency_launch_dependents create_grid_dependency_wait create_map_elementwise
create_map_elementwise_ret create_name_loc create_reduce create_reduce_ret create_scan create_scan_ret
create_tensor_descriptor_type get_insertion_point get_loc
"""
