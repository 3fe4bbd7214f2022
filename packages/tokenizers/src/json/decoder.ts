/**
 * Decoders of tokenizer.json, reduced to a function of a single token: its bytes, and whether a leading space is
 * stripped.
 */
import { byteLevelDecode, hexTokenByte } from '../text/byte-level.js';
import { utf8 } from '../tokenizer/vocabulary-tokenizer.js';
import { asArray, asObject, jsonError, optionalBoolean, optionalString, unsupported } from './value.js';

export interface TokenDecoder {
  readonly bytesOf: (text: string) => Uint8Array;
  readonly stripLeadingSpace: boolean;
}

type Step = (text: string) => string | Uint8Array;

/**
 * Hugging Face decoders are defined on whole sequences; those in use work token by token, apart from the leading space.
 * @throws {FormatError} also for decoders that are not known, because their texts would be wrong
 */
export function readDecoder(value: unknown): TokenDecoder {
  const steps: Step[] = [];
  const state = { strip: false };
  if (value !== null && value !== undefined) addSteps(value, 'decoder', steps, state, 0);
  return {
    stripLeadingSpace: state.strip,
    bytesOf(text) {
      let current: string | Uint8Array = text;
      for (const step of steps) if (typeof current === 'string') current = step(current);
      return typeof current === 'string' ? utf8(current) : current;
    },
  };
}

function addSteps(value: unknown, field: string, steps: Step[], state: { strip: boolean }, depth: number): void {
  if (depth > 8) throw jsonError(field, 'expected at most 8 nested sequences');
  const config = asObject(value, field);
  switch (config['type']) {
    case 'Sequence':
      asArray(config['decoders'], `${field}.decoders`).forEach((step, index) =>
        addSteps(step, `${field}.decoders[${index}]`, steps, state, depth + 1),
      );
      return;
    case 'ByteLevel':
      steps.push(byteLevelDecode);
      return;
    case 'ByteFallback':
      steps.push((text) => {
        const byte = hexTokenByte(text);
        return byte < 0 ? text : Uint8Array.of(byte);
      });
      return;
    case 'Replace': {
      const { String: pattern } = asObject(config['pattern'], `${field}.pattern`);
      if (typeof pattern !== 'string') throw unsupported(`${field}.pattern`, config['pattern']);
      const content = optionalString(config['content'], `${field}.content`) ?? '';
      if (pattern !== '') steps.push((text) => text.replaceAll(pattern, () => content));
      return;
    }
    case 'Strip':
      if (config['content'] === ' ' && typeof config['start'] === 'number' && config['start'] > 0) state.strip = true;
      return;
    case 'Metaspace': {
      const replacement = optionalString(config['replacement'], `${field}.replacement`) ?? '\u2581';
      const legacy = optionalBoolean(config['add_prefix_space'], `${field}.add_prefix_space`) ?? true;
      const scheme =
        optionalString(config['prepend_scheme'], `${field}.prepend_scheme`) ?? (legacy ? 'always' : 'never');
      steps.push((text) => text.replaceAll(replacement, ' '));
      if (scheme !== 'never') state.strip = true;
      return;
    }
    case 'WordPiece': {
      const prefix = optionalString(config['prefix'], `${field}.prefix`) ?? '##';
      steps.push((text) => (text.startsWith(prefix) ? text.slice(prefix.length) : ` ${text}`));
      state.strip = true;
      return;
    }
    case 'BPEDecoder': {
      const suffix = optionalString(config['suffix'], `${field}.suffix`) ?? '</w>';
      if (suffix !== '') steps.push((text) => text.replaceAll(suffix, ' '));
      return;
    }
    case 'Fuse':
      return; // joins tokens, which have no effect on each other here
    default:
      throw unsupported(`${field}.type`, config['type']);
  }
}
