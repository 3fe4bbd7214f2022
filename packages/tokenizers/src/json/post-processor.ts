/** The special tokens that post-processors of tokenizer.json add around one text, or around a pair. */
import { isRecord } from '@winnow/tensor';
import type { PairTemplate } from '../tokenizer/tokenizer.js';
import type { JsonObject } from './value.js';
import { asArray, asId, asObject, asString, jsonError } from './value.js';

export interface Surroundings {
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
  /** Undefined without a template of two texts, and for one that repeats, swaps or mixes them. */
  readonly pair: PairTemplate | undefined;
}

const NOTHING: Surroundings = { prefix: [], suffix: [], pair: undefined };

/** @throws FormatError for malformed fields and unknown types */
export function readPostProcessor(value: unknown, field: string, vocabSize: number, depth = 0): Surroundings {
  if (value === null || value === undefined) return NOTHING;
  if (depth > 8) throw jsonError(field, 'expected at most 8 nested sequences');
  const config = asObject(value, field);
  const checked = (id: unknown, name: string): number => {
    const known = asId(id, name);
    if (known >= vocabSize) throw jsonError(name, `expected a token id below ${vocabSize}, found ${known}`);
    return known;
  };
  switch (config['type']) {
    case 'ByteLevel':
      return NOTHING;
    case 'Sequence': {
      const parts = asArray(config['processors'], `${field}.processors`).map((step, index) =>
        readPostProcessor(step, `${field}.processors[${index}]`, vocabSize, depth + 1),
      );
      return {
        prefix: parts.reduceRight<number[]>((ids, part) => [...ids, ...part.prefix], []),
        suffix: parts.flatMap((part) => part.suffix),
        pair: parts.findLast(({ pair }) => pair !== undefined)?.pair,
      };
    }
    case 'BertProcessing':
    case 'RobertaProcessing': {
      const idOf = (name: string): number =>
        checked(asArray(config[name], `${field}.${name}`)[1], `${field}.${name}[1]`);
      const [cls, sep] = [idOf('cls'), idOf('sep')];
      const isBert = config['type'] === 'BertProcessing';
      const pair = { prefix: [cls], middle: isBert ? [sep] : [sep, sep], suffix: [sep] };
      return { prefix: [cls], suffix: [sep], pair: { ...pair, secondType: isBert ? 1 : 0 } };
    }
    case 'TemplateProcessing':
      return readTemplate(config, field, checked);
    default:
      throw jsonError(
        `${field}.type`,
        `expected TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence, found ${JSON.stringify(config['type'])}`,
      );
  }
}

type Checked = (id: unknown, name: string) => number;

function readTemplate(config: JsonObject, field: string, checked: Checked): Surroundings {
  const single = readPieces(config, 'single', field, checked);
  const at = single.findIndex(({ text }) => text !== undefined);
  const begin = at === -1 ? single.length : at;
  const pair = config['pair'] === undefined ? [] : readPieces(config, 'pair', field, checked);
  return { prefix: idsOf(single.slice(0, begin)), suffix: idsOf(single.slice(begin)), pair: pairOf(pair) };
}

/** A text or a special token of a template. */
interface Piece {
  readonly text?: unknown;
  readonly ids: readonly number[];
  readonly type: unknown;
}

function readPieces(config: JsonObject, name: string, field: string, checked: Checked): Piece[] {
  const specials = config['special_tokens'];
  return asArray(config[name], `${field}.${name}`).map((entry, index) => {
    const at = `${field}.${name}[${index}]`;
    const item = asObject(entry, at);
    if (item['Sequence'] !== undefined) {
      const { id, type_id: type } = asObject(item['Sequence'], `${at}.Sequence`);
      return { text: id, ids: [], type };
    }
    const special = asObject(item['SpecialToken'], `${at}.SpecialToken`);
    const text = asString(special['id'], `${at}.SpecialToken.id`);
    const token = isRecord(specials) && Object.hasOwn(specials, text) ? specials[text] : undefined;
    const tokenField = `${field}.special_tokens[${JSON.stringify(text.slice(0, 60))}]`;
    const ids = asArray(asObject(token, tokenField)['ids'], `${tokenField}.ids`);
    return { ids: ids.map((id) => checked(id, `${tokenField}.ids`)), type: special['type_id'] };
  });
}

function idsOf(pieces: readonly Piece[]): number[] {
  return pieces.flatMap(({ ids }) => ids);
}

function pairOf(pieces: readonly Piece[]): PairTemplate | undefined {
  const texts = pieces.filter(({ text }) => text !== undefined);
  const [first, second] = texts;
  if (texts.length !== 2 || first?.text !== 'A' || second?.text !== 'B') return undefined;
  const [a, b] = [pieces.indexOf(first), pieces.indexOf(second)];
  const [before, after] = [pieces.slice(0, b), pieces.slice(b)];
  const secondType = second.type;
  if (secondType !== 0 && secondType !== 1) return undefined;
  if (before.some(({ type }) => type !== 0) || after.some(({ type }) => type !== secondType)) return undefined;
  return { prefix: idsOf(pieces.slice(0, a)), middle: idsOf(pieces.slice(a, b)), suffix: idsOf(after), secondType };
}
