/** The special tokens that post-processors of tokenizer.json add around a single text. */
import { isRecord } from '@winnow/tensor';
import type { JsonObject } from './value.js';
import { asArray, asId, asObject, asString, jsonError } from './value.js';

export interface Surroundings {
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
}

const NOTHING: Surroundings = { prefix: [], suffix: [] };

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
      };
    }
    case 'BertProcessing':
    case 'RobertaProcessing': {
      const idOf = (name: string): number =>
        checked(asArray(config[name], `${field}.${name}`)[1], `${field}.${name}[1]`);
      return { prefix: [idOf('cls')], suffix: [idOf('sep')] };
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

function readTemplate(config: JsonObject, field: string, checked: (id: unknown, name: string) => number): Surroundings {
  const specials = config['special_tokens'];
  const prefix: number[] = [];
  const suffix: number[] = [];
  let seenText = false;
  asArray(config['single'], `${field}.single`).forEach((entry, index) => {
    const name = `${field}.single[${index}]`;
    const item = asObject(entry, name);
    if (item['Sequence'] !== undefined) {
      seenText = true;
      return;
    }
    const text = asString(asObject(item['SpecialToken'], `${name}.SpecialToken`)['id'], `${name}.SpecialToken.id`);
    const token = isRecord(specials) && Object.hasOwn(specials, text) ? specials[text] : undefined;
    const tokenField = `${field}.special_tokens[${JSON.stringify(text.slice(0, 60))}]`;
    for (const id of asArray(asObject(token, tokenField)['ids'], `${tokenField}.ids`)) {
      (seenText ? suffix : prefix).push(checked(id, `${tokenField}.ids`));
    }
  });
  return { prefix, suffix };
}
