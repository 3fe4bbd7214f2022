/** The settings of experts in config.json. */
import type { DecoderConfig } from '@winnow/models';

type Json = Record<string, unknown>;

export function expertSettings({ experts, numLayers }: DecoderConfig): Json {
  if (experts === undefined) return {};
  const { numExperts, numChosen, ffnDim, sharedFfnDim, numShared, groups, normalize, scale, layers } = experts;
  if (numShared !== undefined) {
    return {
      n_routed_experts: numExperts,
      num_experts_per_tok: numChosen,
      moe_intermediate_size: ffnDim,
      n_shared_experts: numShared,
      norm_topk_prob: normalize,
      routed_scaling_factor: scale,
      first_k_dense_replace: layers.indexOf(true),
      n_group: groups?.numGroups ?? 1,
      topk_group: groups?.numChosen ?? 1,
      ...(groups?.score === 'best' ? { topk_method: 'group_limited_greedy' } : {}),
    };
  }
  return {
    num_experts: numExperts,
    num_experts_per_tok: numChosen,
    moe_intermediate_size: ffnDim,
    norm_topk_prob: normalize,
    ...(sharedFfnDim === 0 ? {} : { shared_expert_intermediate_size: sharedFfnDim }),
    ...(scale === 1 ? {} : { routed_scaling_factor: scale }),
    decoder_sparse_step: 1,
    mlp_only_layers: Array.from({ length: numLayers }, (_, layer) => layer).filter((layer) => layers[layer] === false),
  };
}

/** The same settings under the names that architectures with only experts use. */
export function localExpertSettings({ experts }: DecoderConfig): Json {
  return { num_local_experts: experts?.numExperts, num_experts_per_tok: experts?.numChosen };
}
