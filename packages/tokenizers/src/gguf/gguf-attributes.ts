/**
 * Token attributes of a GGUF vocabulary, after the corrections that llama.cpp applies by token text: end-of-turn
 * markers that files declare as normal tokens, and whitespace stripped around the special tokens of a few models.
 * https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp (load)
 */
import type { GgufVocabulary } from '../vocabulary/gguf-vocabulary.js';
import { tokenType } from '../vocabulary/gguf-vocabulary.js';
import { END_OF_GENERATION, END_OF_TURN } from '../vocabulary/end-of-generation.js';
import type { SpecialToken } from '../vocabulary/special-tokens.js';

/** Bits of a token's attributes. */
export const attribute: {
  readonly unknown: 1;
  readonly unused: 2;
  readonly normal: 4;
  readonly control: 8;
  readonly userDefined: 16;
  readonly byte: 32;
  readonly leftStrip: 64;
  readonly rightStrip: 128;
} = { unknown: 1, unused: 2, normal: 4, control: 8, userDefined: 16, byte: 32, leftStrip: 64, rightStrip: 128 };

const FILL_IN_MIDDLE: Record<'pre' | 'suf' | 'mid' | 'pad' | 'rep' | 'sep', readonly string[]> = {
  pre: [
    '<|fim_prefix|>',
    '<fim-prefix>',
    '<fim_prefix>',
    '<\uff5cfim\u2581begin\uff5c>',
    '<PRE>',
    '\u2581<PRE>',
    '<|code_prefix|>',
    '<|prefix|>',
  ],
  suf: [
    '<|fim_suffix|>',
    '<fim-suffix>',
    '<fim_suffix>',
    '<\uff5cfim\u2581hole\uff5c>',
    '<SUF>',
    '\u2581<SUF>',
    '<|code_suffix|>',
    '<|suffix|>',
  ],
  mid: [
    '<|fim_middle|>',
    '<fim-middle>',
    '<fim_middle>',
    '<\uff5cfim\u2581end\uff5c>',
    '<MID>',
    '\u2581<MID>',
    '<|code_middle|>',
    '<|middle|>',
  ],
  pad: ['<|fim_pad|>', '<fim-pad>', '<fim_pad>', '<PAD>', '[PAD]'],
  rep: ['<|fim_repo|>', '<|repo_name|>', '<fim-repo>', '<REPO>', '<reponame>'],
  sep: ['<|file_sep|>'],
};

/** Shown to the user by gpt-oss although declared as control tokens. */
const ALWAYS_TEXT = ['<|channel|>', '<|message|>', '<|start|>', '<|constrain|>'];

/** Attributes and end-of-generation ids. */
export interface GgufAttributes {
  /** Bits of `attribute` per id. */
  readonly bits: Uint8Array;
  /** End-of-generation ids, EOS first. */
  readonly eosIds: readonly number[];
}

/** Attributes as declared by the file. */
export function declaredAttributes(vocabulary: GgufVocabulary): Uint8Array {
  const bits = new Uint8Array(vocabulary.tokens.length).fill(attribute.normal);
  const types = vocabulary.tokenTypes;
  if (types === undefined) return bits;
  for (let id = 0; id < bits.length; id++) bits[id] = bitOfType(types[id]!);
  return bits;
}

function bitOfType(type: number): number {
  switch (type) {
    case tokenType.normal:
      return attribute.normal;
    case tokenType.unknown:
      return attribute.unknown;
    case tokenType.control:
      return attribute.control;
    case tokenType.userDefined:
      return attribute.userDefined;
    case tokenType.unused:
      return attribute.unused;
    case tokenType.byte:
      return attribute.byte;
    default:
      return 0;
  }
}

/** Attributes after the corrections by token text. */
export function correctedAttributes(
  vocabulary: GgufVocabulary,
  idByText: ReadonlyMap<string, number>,
  eosId: number | undefined,
): GgufAttributes {
  const bits = declaredAttributes(vocabulary);
  const control = (id: number): number => {
    bits[id]! |= attribute.control;
    return id;
  };
  const firstOf = (given: number | undefined, spellings: readonly string[]): number | undefined => {
    if (given !== undefined) return given;
    const found = spellings.find((text) => idByText.has(text));
    return found === undefined ? undefined : control(idByText.get(found)!);
  };
  const eotId = firstOf(vocabulary.eotId, END_OF_TURN);
  const eomId = firstOf(vocabulary.eomId, ['<|eom_id|>']);
  firstOf(undefined, FILL_IN_MIDDLE.pre);
  firstOf(undefined, FILL_IN_MIDDLE.suf);
  firstOf(undefined, FILL_IN_MIDDLE.mid);
  const ending = new Set<number>();
  for (const id of [
    firstOf(vocabulary.fimPadId, FILL_IN_MIDDLE.pad),
    firstOf(vocabulary.fimRepId, FILL_IN_MIDDLE.rep),
    firstOf(vocabulary.fimSepId, FILL_IN_MIDDLE.sep),
  ]) {
    if (id !== undefined) ending.add(id);
  }
  for (const text of END_OF_GENERATION) {
    const id = idByText.get(text);
    if (id !== undefined) ending.add(control(id));
  }
  for (const text of ALWAYS_TEXT) {
    const id = idByText.get(text);
    if (id !== undefined) bits[id] = attribute.userDefined;
  }
  for (const id of [eosId, eotId, eomId]) if (id !== undefined) ending.add(id);
  const has = (text: string): boolean => idByText.has(text) && ending.has(idByText.get(text)!);
  // In these vocabularies <|end|> separates messages of one answer.
  const harmony = has('<|return|>') && has('<|call|>');
  const solar = (has('<|call|>') || has('<|calls|>')) && has('<|flush|>');
  if ((harmony || solar) && has('<|end|>')) demote('<|end|>', attribute.userDefined);
  if (has('<|tool_response>') && has('</s>')) demote('</s>', attribute.normal);
  applyStripRules(vocabulary, idByText, bits);
  const eosIds = [...ending].sort((a, b) => a - b);
  if (eosId !== undefined && ending.has(eosId)) eosIds.unshift(...eosIds.splice(eosIds.indexOf(eosId), 1));
  return { bits, eosIds };

  function demote(text: string, to: number): void {
    const id = idByText.get(text)!;
    ending.delete(id);
    bits[id] = to;
  }
}

function applyStripRules(vocabulary: GgufVocabulary, idByText: ReadonlyMap<string, number>, bits: Uint8Array): void {
  const { pre = '', architecture = '', modelName = '' } = vocabulary;
  const name = modelName.toLowerCase();
  const strip = (text: string, bit: number, on: boolean): void => {
    const id = idByText.get(text);
    if (id !== undefined) bits[id] = on ? bits[id]! | bit : bits[id]! & ~bit;
  };
  if (
    ['jina-v2-de', 'jina-v2-es', 'jina-v2-code'].some((part) => pre.includes(part)) ||
    ['nomic-bert-moe', 'jina-bert-v3'].some((part) => architecture.includes(part))
  ) {
    strip('<mask>', attribute.leftStrip, true);
  } else if (name.includes('phi-3') || name.includes('phi3')) {
    for (let id = 0; id < bits.length; id++) if (isSplitToken(bits[id]!)) bits[id]! |= attribute.rightStrip;
    strip('</s>', attribute.rightStrip, true);
    for (const text of ['<unk>', '<s>', '<|endoftext|>']) strip(text, attribute.rightStrip, false);
  } else if (name.includes('modern-bert')) {
    strip('[MASK]', attribute.leftStrip, true);
  }
}

function isSplitToken(bits: number): boolean {
  return (bits & (attribute.control | attribute.userDefined | attribute.unknown)) !== 0;
}

/** The tokens that text is split at. */
export function specialTokens(texts: readonly string[], bits: Uint8Array): SpecialToken[] {
  const out: SpecialToken[] = [];
  for (let id = 0; id < bits.length; id++) {
    const flags = bits[id]!;
    if (!isSplitToken(flags)) continue;
    out.push({
      id,
      text: texts[id]!,
      always: (flags & (attribute.control | attribute.unknown)) === 0,
      leftStrip: (flags & attribute.leftStrip) !== 0,
      rightStrip: (flags & attribute.rightStrip) !== 0,
    });
  }
  return out;
}
