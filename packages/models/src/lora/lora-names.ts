/** Maps the module names of PEFT adapters to GGUF names, for PEFT adapters on GGUF models. */

const layerNames: Readonly<Record<string, string>> = {
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.out_proj': 'attn_output',
  'self_attn.dense': 'attn_output',
  'self_attn.qkv_proj': 'attn_qkv',
  'attn.c_attn': 'attn_qkv',
  'attn.c_proj': 'attn_output',
  per_layer_input_gate: 'inp_gate',
  per_layer_projection: 'proj',
  'laurel.linear_left': 'laurel_l',
  'laurel.linear_right': 'laurel_r',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.gate_up_proj': 'ffn_up',
  'mlp.fc1': 'ffn_up',
  'mlp.fc2': 'ffn_down',
  'mlp.c_fc': 'ffn_up',
  'mlp.c_proj': 'ffn_down',
  'feed_forward.gate_proj': 'ffn_gate',
  'feed_forward.up_proj': 'ffn_up',
  'feed_forward.down_proj': 'ffn_down',
  'feed_forward.w1': 'ffn_gate',
  'feed_forward.w3': 'ffn_up',
  'feed_forward.w2': 'ffn_down',
  'linear_attn.in_proj_qkvz': 'ssm_in',
  'linear_attn.in_proj_ba': 'ssm_ba',
  'linear_attn.in_proj_qkv': 'attn_qkv',
  'linear_attn.in_proj_z': 'attn_gate',
  'linear_attn.in_proj_b': 'ssm_beta',
  'linear_attn.in_proj_a': 'ssm_alpha',
  'linear_attn.out_proj': 'ssm_out',
  'mamba.in_proj': 'ssm_in',
  'mamba.out_proj': 'ssm_out',
  'mixer.in_proj': 'ssm_in',
  'mixer.x_proj': 'ssm_x',
  'mixer.dt_proj': 'ssm_dt',
  'mixer.out_proj': 'ssm_out',
  'attention.self.query': 'attn_q',
  'attention.self.key': 'attn_k',
  'attention.self.value': 'attn_v',
  'attention.output.dense': 'attn_output',
  'intermediate.dense': 'ffn_up',
  'output.dense': 'ffn_down',
};

/** `undefined` for an unknown module. */
export function plainHubName(module: string): string | undefined {
  if (/(^|\.)lm_head$/.test(module)) return 'output';
  const match = /(?:^|\.)(?:layers|layer|h)\.(\d+)\.(.+)$/.exec(module);
  const own = match === null ? undefined : layerNames[match[2] as string];
  return own === undefined ? undefined : `blk.${match?.[1]}.${own}`;
}
