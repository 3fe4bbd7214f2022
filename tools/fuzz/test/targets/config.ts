/** config.json beside the weights of a tiny model, which is loaded and run where that is possible. */
import { loadEmbeddingModel, loadModel } from '@winnow/engine';
import { memoryFolder } from '@winnow/hub';
import { createReferenceBackend } from '@winnow/ops';
import { mutateJsonText, type JsonTree } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyConfig, tinyFiles } from '../tiny-model.ts';

const members: Readonly<Record<string, JsonTree>> = {
  model_type: 'qwen3',
  head_dim: 2 ** 31,
  num_experts: 8,
  sliding_window: 1,
  layer_types: ['sliding_attention'],
  rope_scaling: { rope_type: 'yarn', factor: 0, original_max_position_embeddings: 1 },
  rope_parameters: { rope_type: 'llama3', factor: 1e308, low_freq_factor: 0, high_freq_factor: 0 },
  partial_rotary_factor: 0.3,
  logit_scale: 0,
  attention_bias: true,
  quantization_config: { quant_method: 'gptq', bits: 4 },
  eos_token_id: [-1, 1e9],
  text_config: { hidden_size: 8 },
  torch_dtype: 'float64',
};

export async function createTarget(): Promise<Target> {
  const files = await tinyFiles();
  const qwen = { ...tinyConfig, model_type: 'qwen2', sliding_window: 32, use_sliding_window: true };
  const yarn = { ...tinyConfig, rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 128 } };
  return {
    examples: [tinyConfig, qwen, yarn].map((config) => bytesOf(JSON.stringify(config))),
    mutate: (random, input) => bytesOf(mutateJsonText(random, textOf(input), members)),
    async run(input) {
      const folder = memoryFolder({ ...files, 'config.json': input });
      const backend = createReferenceBackend();
      await using model = await loadModel(folder, { backend, context: 16 });
      await model.generate([1, 2, 3], { maxTokens: 2 }).result();
      await using embedder = await loadEmbeddingModel(folder, { backend, context: 16, pooling: 'mean' });
      await embedder.embed([[1, 2]]);
    },
  };
}
