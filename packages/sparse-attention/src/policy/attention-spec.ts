/**
 * The attention policies of a whole model as text: one policy for both phases (`subquadratic:window=256`), or items
 * separated by `;`: `prefill=...;decode=...;dense-first=1;dense-last=1;layers=3-5:dense;layers=7/decode:sparq:rank=16`.
 */
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { inPhase, supportsPhase } from './fields.js';
import { formatPolicy, isJson, isPolicyName, parseJson, parsePolicy } from './text.js';
import type { AttentionPhase, AttentionPolicy, AttentionSpec, LayerOverride } from './kinds.js';
import { checkPolicy, phasePolicy } from './values.js';

/** All layers dense. */
export const denseAttention: AttentionSpec = {
  prefill: { kind: 'dense' },
  decode: { kind: 'dense' },
  denseFirst: 0,
  denseLast: 0,
  layers: [],
};

const itemNames = 'prefill= | decode= | dense-first= | dense-last= | layers=';

/**
 * Reads the text form, or JSON. A bare policy applies to every phase that it supports; the other phase is dense
 * (`sparq` is for decode, `h2o` for prefill).
 * @throws {ArgumentError} that names the error and the valid values
 */
export function parseAttention(text: string): AttentionSpec {
  if (isJson(text)) return checkAttention(parseJson(text, 'attention'));
  const first = text.split(/[:;]/, 1)[0].trim();
  if (isPolicyName(first) || !first.includes('=')) {
    if (text.includes(';')) {
      const policy = text.slice(0, text.indexOf(';'));
      throw new ArgumentError({ argument: 'attention', expected: `prefill=${policy};...`, actual: text });
    }
    return bareSpec(parsePolicy(text.trim(), 'attention'));
  }
  let spec = denseAttention;
  const seen = new Set<string>();
  for (const item of text.split(';')) {
    const equals = item.indexOf('=');
    const name = item.slice(0, Math.max(0, equals)).trim();
    const value = item.slice(equals + 1).trim();
    if (seen.has(name)) {
      throw new ArgumentError({ argument: 'attention', expected: `${name} at most once`, actual: text });
    }
    if (name !== 'layers') seen.add(name);
    switch (name) {
      case 'prefill':
      case 'decode':
        spec = { ...spec, [name]: phasePolicy(parsePolicy(value, name), name, name) };
        break;
      case 'dense-first':
        spec = { ...spec, denseFirst: layerCount(value, name) };
        break;
      case 'dense-last':
        spec = { ...spec, denseLast: layerCount(value, name) };
        break;
      case 'layers':
        spec = { ...spec, layers: [...spec.layers, parseOverride(value)] };
        break;
      default:
        throw new ArgumentError({
          argument: 'attention',
          expected: itemNames,
          actual: item.trim() === '' ? 'an empty item' : item.trim(),
        });
    }
  }
  return spec;
}

/** Formats a specification so that `parseAttention` restores it. */
export function formatAttention(spec: AttentionSpec, options: { readonly full?: boolean } = {}): string {
  const { prefill, decode, denseFirst, denseLast, layers } = spec;
  const prefillText = formatPolicy(prefill, options);
  const decodeText = formatPolicy(decode, options);
  const items: string[] = [];
  if (denseFirst > 0) items.push(`dense-first=${denseFirst}`);
  if (denseLast > 0) items.push(`dense-last=${denseLast}`);
  for (const { first, last, phase, policy } of layers) {
    const range = first === last ? String(first) : `${first}-${last}`;
    items.push(`layers=${range}${phase === 'both' ? '' : `/${phase}`}:${formatPolicy(policy, options)}`);
  }
  if (items.length === 0 && prefillText === decodeText) return prefillText;
  return [`prefill=${prefillText}`, `decode=${decodeText}`, ...items].join(';');
}

/** The options of a command line; `prefill` and `decode` win over the same phase of `attention`. */
export interface AttentionOptions {
  /** The text form of a whole specification, or a bare policy. */
  readonly attention?: string | undefined;
  /** One policy. */
  readonly prefill?: string | undefined;
  /** One policy. */
  readonly decode?: string | undefined;
}

const attentionOptionNames: OptionNames<AttentionOptions> = { attention: true, prefill: true, decode: true };

/** The specification of `--attention`, `--prefill` and `--decode`. @throws {ArgumentError} as `parseAttention` */
export function attentionFromOptions(options: AttentionOptions): AttentionSpec {
  checkOptions(options, attentionOptionNames);
  const { attention, prefill, decode } = options;
  const spec = attention === undefined ? denseAttention : parseAttention(attention);
  return {
    ...spec,
    ...(prefill === undefined ? {} : { prefill: phasePolicy(parsePolicy(prefill, 'prefill'), 'prefill', 'prefill') }),
    ...(decode === undefined ? {} : { decode: phasePolicy(parsePolicy(decode, 'decode'), 'decode', 'decode') }),
  };
}

/**
 * Checks a specification from JSON or untyped code and fills in defaults; text and single policies are accepted as
 * well. A checked specification is plain data: `JSON.stringify` writes it.
 * @throws {ArgumentError} that names the error and the valid values
 */
export function checkAttention(value: unknown): AttentionSpec {
  if (typeof value === 'string') return parseAttention(value);
  if (typeof value !== 'object' || value === null) {
    throw new ArgumentError({ argument: 'attention', expected: 'an object or text', actual: String(value) });
  }
  if ('kind' in value) return bareSpec(checkPolicy(value, 'attention'));
  const { prefill, decode, denseFirst, denseLast, layers, ...unknown } = value as Partial<Record<string, unknown>>;
  for (const property of Object.keys(unknown)) {
    const expected = Object.keys(denseAttention).join(' | ');
    throw new ArgumentError({ argument: 'attention', expected, actual: property });
  }
  if (layers !== undefined && !Array.isArray(layers)) {
    throw new ArgumentError({ argument: 'attention: layers', expected: 'an array', actual: JSON.stringify(layers) });
  }
  const phase = (name: AttentionPhase, given: unknown): AttentionPolicy =>
    given === undefined ? { kind: 'dense' } : phasePolicy(checkPolicy(given, name), name, name);
  return {
    prefill: phase('prefill', prefill),
    decode: phase('decode', decode),
    denseFirst: layerCount(denseFirst ?? 0, 'denseFirst'),
    denseLast: layerCount(denseLast ?? 0, 'denseLast'),
    layers: (layers ?? []).map(checkOverride),
  };
}

/** The same policy in both phases, but dense in a phase that it does not support. */
function bareSpec(policy: AttentionPolicy): AttentionSpec {
  const forPhase = (phase: AttentionPhase): AttentionPolicy =>
    supportsPhase(policy.kind, phase) ? inPhase(policy, phase) : { kind: 'dense' };
  return { ...denseAttention, prefill: forPhase('prefill'), decode: forPhase('decode') };
}

function layerCount(value: unknown, argument: string): number {
  const count = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value;
  if (Number.isSafeInteger(count) && (count as number) >= 0) return count as number;
  throw new ArgumentError({
    argument,
    expected: 'a number of layers',
    actual: value === '' ? 'nothing' : String(value),
  });
}

function parseOverride(text: string): LayerOverride {
  const match = /^(\d+)(?:-(\d+))?(?:\/([^:]*))?:(.*)$/s.exec(text);
  if (match === null) {
    const expected = '3:POLICY, 3-5:POLICY or 3-5/decode:POLICY';
    throw new ArgumentError({ argument: 'layers', expected, actual: text === '' ? 'nothing' : text });
  }
  const [, first, last = first, phase = 'both', policy] = match;
  const argument = `layers=${first}-${last}`;
  return checkOverride({ first: Number(first), last: Number(last), phase, policy: parsePolicy(policy, argument) });
}

function checkOverride(value: unknown): LayerOverride {
  const actual = JSON.stringify(value) ?? 'nothing';
  if (typeof value !== 'object' || value === null) {
    throw new ArgumentError({ argument: 'layers', expected: 'objects of first, last, phase, policy', actual });
  }
  const { first, last = first, phase = 'both', policy, ...unknown } = value as Partial<Record<string, unknown>>;
  const isRange = Number.isSafeInteger(first) && Number.isSafeInteger(last) && 0 <= Number(first);
  if (!isRange || Number(first) > Number(last) || Object.keys(unknown).length > 0) {
    throw new ArgumentError({ argument: 'layers', expected: 'first <= last, layers from 0', actual });
  }
  const argument = `layers=${Number(first)}-${Number(last)}`;
  if (phase !== 'both' && phase !== 'prefill' && phase !== 'decode') {
    throw new ArgumentError({ argument, expected: 'prefill | decode', actual: JSON.stringify(phase) });
  }
  const checked = checkPolicy(policy, argument);
  if (phase !== 'both') phasePolicy(checked, phase, `${argument}/${phase}`);
  return { first: Number(first), last: Number(last), phase, policy: checked };
}
