import { ArgumentError } from '@winnow/tensor';
import { denseAttention, formatAttention, parseAttention, parsePolicy } from '@winnow/sparse-attention';
import { expect, it } from 'vitest';
import { createConfigurations, openOptionsOf } from './configuration.js';
import { candidatePolicies, defaultPolicies, uniformPolicies } from './policies.js';

it('a configuration is measured in the phases that it affects', () => {
  const policies = ['dense', 'subquadratic', 'sparq', 'h2o', 'prefill=streaming;decode=sparq', 'layers=1/decode:sparq'];
  policies.push('decode=sparq;layers=1:streaming');
  const q8 = { keys: 'q8_0', values: 'q8_0' } as const;
  const configurations = createConfigurations(policies, [q8, { keys: 'q8_0', values: 'q4_0' }]);
  expect(configurations.map(({ label, phases }) => [label, phases.join('+')])).toEqual([
    ['dense', 'prefill+decode'],
    ['subquadratic', 'prefill+decode'],
    ['sparq', 'decode'],
    ['h2o', 'prefill'],
    ['prefill=streaming;decode=sparq', 'prefill+decode'],
    ['layers=1/decode:sparq', 'decode'],
    ['decode=sparq;layers=1:streaming', 'prefill+decode'],
    ['kv=q8_0', 'prefill'],
    ['kv=q8_0/q4_0', 'prefill'],
  ]);
  expect(openOptionsOf(configurations[0], 64).attention).toEqual(denseAttention);
  const kvCache = { dtype: q8, prefixSharing: false };
  expect(openOptionsOf(configurations[7], 64)).toEqual({ attention: denseAttention, kvCache, context: 64 });
  expect(() => createConfigurations(['dense', 'dense'], [])).toThrow(ArgumentError);
  expect(() => createConfigurations(['sparse'], [])).toThrow(ArgumentError);
});

it('default policies are different, valid and grow with the text', () => {
  for (const numTokens of [16, 256, 1024, 4096]) {
    const policies = defaultPolicies(numTokens, 64);
    for (const text of policies)
      expect(parseAttention(formatAttention(parseAttention(text)))).toEqual(parseAttention(text));
    expect(new Set(policies).size).toBe(policies.length);
    for (const text of policies) expect(64 % Number(/(?:block|page)=(\d+)/.exec(text)?.[1] ?? 1)).toBe(0);
  }
  expect(defaultPolicies(1024, 64)).toContain('oracle-topk:k=64');
  expect(defaultPolicies(4096, 64)).toContain('oracle-topk:k=1024');
});

it('tuning tries what evaluations compare, and nothing that saves no time', () => {
  for (const phase of ['prefill', 'decode'] as const) {
    const candidates = candidatePolicies(phase, 2048, 32);
    expect(candidates).toEqual(expect.arrayContaining(uniformPolicies(phase, 2048, 32)));
    expect(candidates.filter((text) => /oracle|dense/.test(text))).toEqual([]);
    expect(candidates.some((text) => text.startsWith('sparq'))).toBe(phase === 'decode');
    expect(candidates.some((text) => text.startsWith('h2o'))).toBe(phase === 'prefill');
    expect(candidates.some((text) => text.startsWith('verified-topk'))).toBe(phase === 'decode');
    for (const kind of ['subquadratic', 'streaming', 'h2o']) {
      const corrected = candidates.filter((text) => text.startsWith(kind) && text.includes('delta='));
      expect(corrected.length > 0).toBe(phase === 'prefill');
    }
    for (const text of candidates) expect(parseAttention(`${phase}=${text}`)[phase].kind).toBe(parsePolicy(text).kind);
  }
});
