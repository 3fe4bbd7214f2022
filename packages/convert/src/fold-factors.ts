/** The factors of Falcon-H1, which config.json declares and GGUF files fold into the weights. */
import {
  architectureOf,
  factorsInGguf,
  falconH1FactorNames,
  falconH1Factors,
  type EmbedderDescription,
  type Fields,
  type ModelFile,
  type Weight,
} from '@winnow/models';
import { scaledRowsView } from './views.js';

interface FoldedFactors {
  /** The file without its factors. */
  readonly file: ModelFile;
  /** Multiplies the weights of a description of that file by the factors. */
  readonly fold: (weights: Map<string, Weight>, description: EmbedderDescription) => void;
}

/** @param file a Hugging Face folder */
export function foldedFactors(file: ModelFile): FoldedFactors {
  if (!factorsInGguf.includes(architectureOf(file).name)) return { file, fold: () => undefined };
  const fields = file.fields.without((name) => falconH1FactorNames.includes(name));
  return { file: { ...file, fields }, fold: (weights, { config }) => foldInto(weights, file.fields, config.isTied) };
}

function foldInto(weights: Map<string, Weight>, fields: Fields, isTied: boolean): void {
  const factors = falconH1Factors(fields);
  const { embedding, logits, attentionIn, attentionOut, key, statesOut, gate, down } = factors;
  const table = weights.get('token_embd.weight') as Weight;
  // a shared table cannot contain two different factors
  if (isTied && logits !== embedding) weights.set('output.weight', { ...table, name: 'output.weight' });
  const byName: readonly (readonly [pattern: RegExp, factor: number])[] = [
    [/^token_embd\.weight$/, embedding],
    [/^output\.weight$/, logits],
    [/\.attn_[qv]\.weight$/, attentionIn],
    [/\.attn_k\.weight$/, attentionIn * key],
    [/\.attn_k\.bias$/, key],
    [/\.attn_output\.(weight|bias)$/, attentionOut],
    [/\.ssm_out\.weight$/, statesOut],
    [/\.ffn_gate\.weight$/, gate],
    [/\.ffn_down\.weight$/, down],
  ];
  for (const [name, weight] of weights) {
    if (name.endsWith('.ssm_in.weight')) {
      replace(weights, weight, projectionFactors(fields, factors, weight));
      continue;
    }
    const factor = byName.find(([pattern]) => pattern.test(name))?.[1] ?? 1;
    if (factor !== 1) replace(weights, weight, () => factor);
  }
}

function replace(weights: Map<string, Weight>, weight: Weight, factorOf: (row: number) => number): void {
  weights.set(weight.name, { ...weight, stored: scaledRowsView(weight.stored, factorOf) });
}

/** The rows of the projection are those of z, x, b, c and dt. */
function projectionFactors(
  fields: Fields,
  { states: { z, x, b, c, dt } }: ReturnType<typeof falconH1Factors>,
  { shape }: Weight,
): (row: number) => number {
  const numHeads = fields.count('mamba_n_heads', 128);
  const groupDim = fields.count('mamba_n_groups', 1) * fields.count('mamba_d_state', 256);
  const innerDim = ((shape[0] as number) - 2 * groupDim - numHeads) / 2;
  const ends = [innerDim, 2 * innerDim, 2 * innerDim + groupDim, 2 * innerDim + 2 * groupDim];
  const factors = [z, x, b, c];
  return (row) => {
    const part = ends.findIndex((end) => row < end);
    return (part < 0 ? dt : factors[part]) as number;
  };
}
