/** What unsupported architectures need, and which supported family is nearest to them. */

/** What the programs of this package cannot express, in words that complete "it needs". */
const needs = {
  stateSpace: 'a description of its state-space layers (Mamba)',
  linear: 'the recurrence, the shifted tokens and the channel mixing of RWKV',
  encoderDecoder: 'an encoder and cross-attention',
  encoderPositions: 'the positions and tokens of this encoder',
  taskAdapters: 'rotary positions in these blocks and an adapter per task, also of the embedding table',
  image: 'an image encoder that is not read yet',
  parallel: 'the parallel blocks of this family',
  alibi: 'ALiBi position biases',
  own: 'a description of its layers',
} as const;

/** Families that are not supported. */
export interface UnsupportedFamily {
  /** The beginnings of names in both formats. */
  readonly names: readonly string[];
  readonly need: keyof typeof needs;
  /** Name of the supported architecture that has most in common with it. */
  readonly nearest: string;
}

const rows: readonly (readonly [names: string, need: keyof typeof needs, nearest: string])[] = [
  ['minicpm3 kimi glm-dsa glm_moe_dsa glm4_moe_lite mistral4 deepseek_v32 deepseek_v4', 'own', 'deepseek2'],
  ['deepseek_vl deepseek_ocr deepseek2-ocr', 'image', 'deepseek2'],
  ['jamba bamba zamba nemotron_h plamo2', 'stateSpace', 'granitehybrid'],
  ['ernie4_5-moe ernie4_5_moe', 'own', 'ernie4_5'],
  ['deepseek dots1 bailingmoe', 'own', 'glm4moe'],
  ['rwkv arwkv', 'linear', 'qwen35'],
  ['t5 mt5 umt5 bart mbart marian whisper', 'encoderDecoder', 'bert'],
  ['roberta camembert', 'encoderPositions', 'xlm-roberta'],
  ['jina-bert-v3', 'taskAdapters', 'nomic-bert'],
  ['jina-bert jina_bert eurobert neo-bert deberta distilbert', 'encoderPositions', 'bert'],
  ['llava_ mllama idefics2 siglip2 pixtral', 'image', 'llama'],
  ['gemma4_assistant gemma4-assistant gemma4_unified_assistant', 'own', 'gemma4'],
  ['command-r cohere falcon gptj gptneox gpt_neox codegen', 'parallel', 'phi2'],
  ['mpt bloom', 'alibi', 'gpt2'],
  ['minicpm', 'own', 'granite'],
];

/** The first entry with the beginning of a name applies. */
export const knownUnsupported: readonly UnsupportedFamily[] = rows.map(([names, need, nearest]) => ({
  names: names.split(' '),
  need,
  nearest,
}));

/** @returns a sentence without a full stop, with the name of a supported family that is nearest */
export function whatIsMissing(name: string, families: readonly string[]): string {
  const known = knownUnsupported.find(({ names }) => names.some((begin) => name.startsWith(begin)));
  const { need, nearest } = known ?? { need: 'own' as const, nearest: nearestByName(name, families) };
  return `it needs ${needs[need]}; the nearest supported family is ${nearest}`;
}

/** Shorter common prefixes are accidental: `nemotron` is unrelated to `nomic-bert`. */
const minCommonLetters = 3;

/** The first family with the longest common prefix; else Llama, whose block most decoders use. */
function nearestByName(name: string, families: readonly string[]): string {
  const letters = [...name.toLowerCase()];
  const inCommon = (family: string): number => {
    const differs = letters.findIndex((letter, index) => letter !== family[index]);
    return differs === -1 ? letters.length : differs;
  };
  const most = Math.max(minCommonLetters, ...families.map(inCommon));
  return families.find((family) => inCommon(family) === most) ?? 'llama';
}
