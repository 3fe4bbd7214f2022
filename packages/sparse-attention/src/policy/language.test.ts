/** The policy language: text, JSON and objects are equivalent; errors list the valid choices. */
import { ArgumentError } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { attentionFromOptions, checkAttention, formatAttention, parseAttention } from './attention-spec.js';
import { inPhase, policySchemas, supportsPhase, type PolicyField } from './fields.js';
import { formatPolicy, parsePolicy } from './text.js';
import type { AttentionPhase, AttentionPolicy, AttentionSpec } from './kinds.js';
import { checkPolicy } from './values.js';
import { resolvePolicy } from './resolve-policy.js';

function arbitraryValue({ type, min = 0, below = 1, words = [] }: PolicyField): fc.Arbitrary<unknown> {
  const integer = fc.oneof(fc.integer({ min, max: min + 300 }), fc.integer({ min, max: 2 ** 31 - 1 }));
  switch (type) {
    case 'boolean':
      return fc.boolean();
    case 'choice':
      return fc.constantFrom(...words);
    case 'positions':
      return fc.uniqueArray(fc.nat(), { maxLength: 4 });
    case 'integer':
      return words.length === 0 ? integer : fc.oneof(integer, fc.constantFrom(...words));
    case 'number':
      return fc.double({ min: 0, max: below, maxExcluded: true, noNaN: true }).map(Math.abs);
  }
}

const arbitraryPolicy: fc.Arbitrary<AttentionPolicy> = fc
  .constantFrom(...policySchemas)
  .chain((schema) =>
    fc
      .record(Object.fromEntries(schema.fields.map((field) => [field.property, arbitraryValue(field)])), {
        requiredKeys: [],
      })
      .map((values) => ({ kind: schema.kind, ...values })),
  )
  .filter((value) => {
    try {
      checkPolicy(value);
      return true;
    } catch {
      return false; // an invalid combination
    }
  })
  .map((value) => checkPolicy(value));

const policyFor = (phase: AttentionPhase): fc.Arbitrary<AttentionPolicy> =>
  arbitraryPolicy.filter(({ kind }) => supportsPhase(kind, phase)).map((policy) => inPhase(policy, phase));

const arbitrarySpec: fc.Arbitrary<AttentionSpec> = fc.record({
  prefill: policyFor('prefill'),
  decode: policyFor('decode'),
  denseFirst: fc.nat(3),
  denseLast: fc.nat(3),
  layers: fc.array(
    fc
      .record({
        first: fc.nat(9),
        more: fc.nat(9),
        phase: fc.constantFrom('both', 'prefill', 'decode'),
        policy: arbitraryPolicy,
      })
      .filter(({ phase, policy }) => phase === 'both' || supportsPhase(policy.kind, phase as AttentionPhase))
      .map(({ first, more, phase, policy }) => ({
        ...{ first, last: first + more, phase: phase as AttentionPhase },
        policy: phase === 'decode' ? inPhase(policy, phase) : policy,
      })),
    { maxLength: 3 },
  ),
});

describe('round trips', () => {
  it('policy -> text -> policy, short and complete', () => {
    fc.assert(
      fc.property(arbitraryPolicy, fc.boolean(), (policy, full) => {
        expect(parsePolicy(formatPolicy(policy, { full }))).toEqual(policy);
      }),
      { numRuns: 1000 },
    );
  });

  it('specification -> text -> specification', () => {
    fc.assert(
      fc.property(arbitrarySpec, fc.boolean(), (spec, full) => {
        expect(parseAttention(formatAttention(spec, { full }))).toEqual(spec);
      }),
      { numRuns: 1000 },
    );
  });

  it('specification -> JSON -> specification', () => {
    fc.assert(
      fc.property(arbitrarySpec, (spec) => {
        expect(checkAttention(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
        expect(parseAttention(JSON.stringify(spec))).toEqual(spec);
        expect(parsePolicy(JSON.stringify(spec.decode))).toEqual(spec.decode);
      }),
      { numRuns: 300 },
    );
  });
});

describe('text', () => {
  it('accepts every form of a specification', () => {
    expect(
      parsePolicy('subquadratic:window=128,block=64,globals=0+5,logstride=true,landmarks=compat,bias=none'),
    ).toEqual({
      kind: 'subquadratic',
      window: 128,
      blockSize: 64,
      globals: [0, 5],
      logStride: true,
      landmarks: 'compat',
      landmarkBias: 'none',
      delta: 0,
    });
    expect(parsePolicy('h2o:chunk=1024,local=256,heavy=256,sinks=0')).toEqual(parsePolicy('h2o-prefill'));
    expect(parsePolicy('sparq:rank=16,topk=64')).toMatchObject({ rank: 16, topK: 64, local: 16, grouped: true });
    expect(parsePolicy('streaming:window=16384,sinks=64')).toEqual({
      ...{ kind: 'streaming', window: 16384, sinks: 64, delta: 0 },
    });
    expect(parsePolicy('page-topk:budget=32')).toMatchObject({ budget: 32, epsilon: 0 });
    expect(parsePolicy('page-topk:epsilon=0.02')).toMatchObject({ budget: 'all', epsilon: 0.02 });
    expect(formatPolicy(parsePolicy('page-topk:budget=32,epsilon=0.02'))).toBe('page-topk:budget=32,epsilon=0.02');
    expect(formatPolicy(parsePolicy('subquadratic:globals=none'))).toBe('subquadratic:globals=none');
    expect(parsePolicy('subquadratic:landmarks=off')).toMatchObject({ landmarkBias: 'none' });
  });

  it('corrects prefill only', () => {
    const text = 'streaming:window=16,delta=8';
    const [prefill, decode] = [parsePolicy(text), parsePolicy('streaming:window=16')];
    expect(parseAttention(text)).toMatchObject({ prefill, decode });
    expect(formatAttention(parseAttention(text))).toBe(`prefill=${text};decode=streaming:window=16`);
    expect(resolvePolicy(`prefill=dense;layers=0:${text}`, { numLayers: 1 })).toEqual([{ prefill, decode }]);
    expect(() => parseAttention(`decode=${text}`)).toThrow('delta: expected 0, got 8, which corrects prefill only');
    expect(() => parseAttention(`prefill=dense;layers=0/decode:${text}`)).toThrow(ArgumentError);
  });

  it('applies a bare policy to the phases that it supports', () => {
    expect(parseAttention('sparq')).toMatchObject({ prefill: { kind: 'dense' }, decode: { kind: 'sparq' } });
    expect(parseAttention('h2o')).toMatchObject({ prefill: { kind: 'h2o-prefill' }, decode: { kind: 'dense' } });
    expect(parseAttention('streaming')).toMatchObject({
      prefill: { kind: 'streaming' },
      decode: { kind: 'streaming' },
    });
    expect(attentionFromOptions({ attention: 'streaming', prefill: 'dense' }).prefill).toEqual({ kind: 'dense' });
    expect(attentionFromOptions({ decode: 'sparq' }).prefill).toEqual({ kind: 'dense' });
  });
});

describe('errors', () => {
  it.each([
    ['sparkq', 'attention: expected dense | subquadratic | sparq', 'sparkq'],
    ['sparkq', '| h2o-prefill | h2o |', 'did you mean sparq?'],
    ['h20', 'attention: expected', '"h20" (did you mean h2o?)'],
    ['', 'expected dense', 'nothing'],
    ['sparq:ranks=3', 'expected rank=..., topk=...', 'ranks=3'],
    ['sparq:rank', 'expected rank=', 'rank'],
    ['dense:rank=3', 'expected no options', 'rank=3'],
    ['sparq:rank=0', 'rank: expected an integer from 1', '0'],
    ['sparq:rank=1.5', 'rank: expected an integer from 1', '1.5'],
    ['sparq:rank=3,rank=4', 'expected rank at most once', 'rank=4'],
    ['sparq:rank=', 'rank: expected an integer', 'nothing'],
    ['sparq:topk=8,local=9', 'local: expected at most topk=8', '9'],
    ['sparq:mean=yes', 'mean: expected true | false', 'yes'],
    ['subquadratic:landmarks=on', 'landmarks: expected compat | outside-window | off', 'on'],
    ['subquadratic:landmarks=off,bias=log-count', 'bias: expected none where landmarks=off', 'log-count'],
    ['subquadratic:globals=0+0', 'globals: expected distinct positions', '0+0'],
    ['page-topk:epsilon=1', 'epsilon: expected a number in [0, 1)', '1'],
    ['page-topk:epsilon=-0.1', 'epsilon: expected a number in [0, 1)', '-0.1'],
    ['page-topk:budget=some', 'budget: expected an integer from 0 or all', 'some'],
    ['prefill=sparq', 'prefill: expected dense | subquadratic | h2o-prefill', 'sparq, which is for decode only'],
    ['decode=h2o', 'decode: expected dense | subquadratic | sparq', 'h2o-prefill, which is for prefill only'],
    ['dense;decode=sparq', 'expected prefill=dense;...', 'dense;decode=sparq'],
    ['prefill=dense;prefill=dense', 'expected prefill at most once', 'prefill=dense;prefill=dense'],
    ['prefill=dense;', 'expected prefill= |', 'an empty item'],
    ['prefills=dense', 'expected prefill= |', 'prefills=dense'],
    ['dense-first=-1', 'dense-first: expected a number of layers', '-1'],
    ['{"kind":"sparq"', 'attention: expected a policy or its JSON', '{"kind":"sparq"'],
    ['{"kind":"sparq","rank":0}', 'attention: sparq.rank: expected an integer from 1', '0'],
    ['prefill={"kind":"sparq"}', 'prefill: expected dense | subquadratic', 'sparq, which is for decode only'],
    ['layers=5-3:dense', 'layers: expected first <= last', '"first":5'],
    ['layers=a:dense', 'layers: expected 3:POLICY', 'a:dense'],
    ['layers=3/later:dense', 'expected prefill | decode', 'later'],
    ['layers=3/prefill:sparq', 'layers=3-3/prefill: expected dense', 'sparq, which is for decode only'],
  ])('rejects %s', (text, expected, actual) => {
    const refusal = (): unknown => parseAttention(text);
    expect(refusal).toThrow(ArgumentError);
    expect(refusal).toThrow(expected);
    expect(refusal).toThrow(actual);
  });

  it.each([
    [{ kind: 'sparq', ranks: 3 }, 'rank | topK', 'ranks'],
    [{ kind: 'sparq', rank: '3' }, 'an integer from 1', '"3"'],
    [{ kind: 'page-topk', epsilon: NaN }, 'a number in [0, 1)', 'null'],
    [{ prefil: 'dense' }, 'prefill | decode', 'prefil'],
    [{ prefill: { kind: 'page-topk' } }, 'dense | subquadratic', 'page-topk'],
    [{ layers: 3 }, 'an array', '3'],
    [{ layers: [{ first: 1, last: 0, policy: { kind: 'dense' } }] }, 'first <= last', '"last":0'],
    [null, 'an object or text', 'null'],
  ])('rejects the object %j', (value, expected, actual) => {
    const refusal = (): unknown => checkAttention(value);
    expect(refusal).toThrow(ArgumentError);
    expect(refusal).toThrow(expected);
    expect(refusal).toThrow(actual);
  });
});

describe('resolvePolicy', () => {
  it('applies phases, then dense ends, then overrides in order', () => {
    const spec =
      'prefill=h2o;decode=sparq;dense-first=1;dense-last=2;layers=2-3:dense;layers=3/decode:page-topk;layers=5:sparq';
    const kinds = resolvePolicy(spec, { numLayers: 6 }).map(({ prefill, decode }) => `${prefill.kind} ${decode.kind}`);
    expect(kinds).toEqual([
      'dense dense',
      'h2o-prefill sparq',
      'dense dense',
      'dense page-topk',
      'dense dense',
      'dense sparq',
    ]);
  });

  it('keeps layers dense that have to be', () => {
    const layers = resolvePolicy('decode=sparq;layers=0:page-topk', { numLayers: 2, denseLayers: [true, false] });
    expect(layers.map(({ decode }) => decode.kind)).toEqual(['dense', 'sparq']);
  });

  it('rejects layers that the model does not have', () => {
    expect(() => resolvePolicy('layers=3-6:dense', { numLayers: 6 })).toThrow('expected layers from 0 to 5, got 3-6');
    expect(() => resolvePolicy('dense-first=7', { numLayers: 6 })).toThrow('at most 6 layers');
  });
});
