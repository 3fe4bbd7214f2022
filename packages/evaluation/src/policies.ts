/** Attention policies by a number of keys: one table for what `winnow eval` compares and `winnow tune` tries. */
import { parsePolicy, supportsPhase, type AttentionPhase } from '@winnow/sparse-attention';

/** A number of keys per query. */
interface KeyBudget {
  readonly numKeys: number;
  /** The same as a share of the text. */
  readonly share: number;
  readonly headDim: number;
}

interface PolicyFamily {
  /**
   * `compared` by `winnow eval` and tried by `winnow tune`; a `bound` is only compared, since it saves no time; a
   * `variant` of another family, with the same keys at another cost, is only tried, and so is one that is `corrected`
   * in prefill.
   */
  readonly use: 'compared' | 'bound' | 'variant' | 'corrected';
  /** The policy that visits about this many keys, in its text form. */
  readonly policy: (budget: KeyBudget) => string;
}

/** Sizes of landmarks and pages are powers of two, so that they divide the block size of the engine's cache. */
const families: readonly PolicyFamily[] = [
  { use: 'compared', policy: subquadratic },
  { use: 'compared', policy: streaming },
  { use: 'compared', policy: h2o },
  ...[subquadratic, streaming, h2o].map((policy): PolicyFamily => {
    return { use: 'corrected', policy: (budget) => `${policy(budget)},delta=64` };
  }),
  { use: 'compared', policy: (budget) => `sparq:rank=${rankOf(budget)},topk=${budget.numKeys}` },
  { use: 'variant', policy: (budget) => `sparq:rank=${rankOf(budget)},topk=${budget.numKeys},layout=both` },
  {
    use: 'compared',
    policy: ({ numKeys }) => `page-topk:budget=${Math.max(1, Math.floor(numKeys / 16) - 2)},page=16,window=16`,
  },
  { use: 'bound', policy: ({ numKeys }) => `oracle-topk:k=${numKeys}` },
];

function subquadratic({ numKeys }: KeyBudget): string {
  return `subquadratic:window=${numKeys},block=${2 ** Math.floor(Math.log2(Math.min(128, numKeys) / 2))}`;
}

function streaming({ numKeys }: KeyBudget): string {
  return `streaming:window=${numKeys},sinks=4`;
}

function h2o({ numKeys }: KeyBudget): string {
  return `h2o:chunk=${numKeys},local=${numKeys / 4},heavy=${numKeys / 4}`;
}

/** Components of SparQ's approximate logits: twice the share of the keys. */
function rankOf({ share, headDim }: KeyBudget): number {
  return Math.max(2, Math.min(headDim, Math.floor(2 * share * headDim)));
}

function policiesAt(
  parts: readonly number[],
  { numTokens, headDim }: { readonly numTokens: number; readonly headDim: number },
  uses: readonly PolicyFamily['use'][],
): string[] {
  const budgets = parts.map((part): KeyBudget => {
    const numKeys = Math.max(16, 8 * Math.round(numTokens / part / 8));
    return { numKeys, share: 1 / part, headDim };
  });
  const used = families.filter(({ use }) => uses.includes(use));
  return [...new Set(used.flatMap(({ policy }) => budgets.map(policy)))];
}

/** Visits as many pages as its bounds need, so that no number of keys leads to it. */
const certified = 'page-topk:budget=all,epsilon=0.05,page=16,window=16';

/** Visit as many keys as the promised error of each output needs. */
const promised = [0.1, 0.2, 0.5].map((epsilon) => `verified-topk:epsilon=${epsilon},page=16,window=16`);

/**
 * Dense, every policy of the table at three budgets, about 1/16, 1/8 and 1/4 of the tokens, and `page-topk` by its
 * certificate.
 */
export function defaultPolicies(numTokens: number, headDim: number): string[] {
  const texts = policiesAt([16, 8, 4], { numTokens, headDim }, ['compared', 'bound']);
  return ['dense', ...texts, certified];
}

/**
 * The policies that `winnow tune` tries in a phase, besides dense: five budgets from 1/32 to 1/2 of the tokens, small ones
 * also with dense queries that correct the others of a prompt, `verified-topk` by its promised error, and `page-topk` by
 * its certificate. Those of `uniformPolicies` are among them.
 */
export function candidatePolicies(phase: AttentionPhase, numTokens: number, headDim: number): string[] {
  const size = { numTokens, headDim };
  const corrected = phase === 'prefill' ? policiesAt([16, 8], size, ['corrected']) : [];
  const texts = [...policiesAt([32, 16, 8, 4, 2], size, ['compared', 'variant']), ...corrected, ...promised, certified];
  return texts.filter((text) => supportsPhase(parsePolicy(text).kind, phase));
}

/** Those of `defaultPolicies` that a tuned policy competes with: all but dense and bounds. */
export function uniformPolicies(phase: AttentionPhase, numTokens: number, headDim: number): string[] {
  const texts = policiesAt([16, 8, 4], { numTokens, headDim }, ['compared']);
  return [...texts, certified].filter((text) => supportsPhase(parsePolicy(text).kind, phase));
}
