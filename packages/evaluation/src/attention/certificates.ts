/** Compares the certificate of `page-topk` with the softmax mass that was actually missed. */
import type { Backend } from '@winnow/ops';
import { AttentionLayer, exactWeights, massCaptured, type PageTopKPolicy } from '@winnow/sparse-attention';
import { meanOf, percentile } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';

export interface CertificateReport {
  readonly name: string;
  readonly layer: number | undefined;
  readonly numQueries: number;
  /** The certified bound of the missing mass, over queries and heads. */
  readonly certificate: Distribution;
  /** The mass that was actually missing. */
  readonly missing: Distribution;
  readonly density: number;
  /**
   * The same for shorter contexts: queries after `from` to `to` tokens, each range twice as long as the previous one.
   */
  readonly lengths: readonly CertificatesAtLength[];
}

export interface CertificatesAtLength {
  readonly from: number;
  readonly to: number;
  readonly certificate: Distribution;
  readonly missing: Distribution;
  readonly density: number;
}

export interface Distribution {
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly max: number;
}

/**
 * Queries from `begin` on, over the keys before them.
 * @param backend default: the reference backend, which is slow
 */
export async function measureCertificates(
  policy: PageTopKPolicy,
  capture: AttentionCapture,
  begin: number,
  backend?: Backend,
): Promise<CertificateReport> {
  const { q, k, v, scale, name, layer: index } = capture;
  await using layer = new AttentionLayer({
    ...{ backend, decode: policy, capacity: k.seqLen, scale },
    ...{ numHeads: q.numHeads, numKvHeads: k.numHeads, headDim: k.headDim, valueDim: v.headDim },
  });
  await layer.append(k, v);
  const whole = await measureRange(layer, capture, begin, q.seqLen);
  const lengths = [whole];
  for (let end = begin; lengths.length < numLengths && end >= 2; end >>= 1) {
    lengths.unshift(await measureRange(layer, capture, end >> 1, end));
  }
  const { certificate, missing, density } = whole;
  const numQueries = (q.seqLen - begin) * q.numHeads;
  return { name, layer: index, numQueries, certificate, missing, density, lengths };
}

/** The queries of positions `[from, end)`. */
async function measureRange(
  layer: AttentionLayer,
  { q, k, scale }: AttentionCapture,
  from: number,
  end: number,
): Promise<CertificatesAtLength> {
  const groupSize = q.numHeads / k.numHeads;
  const missing: number[] = [];
  let visited = 0;
  let possible = 0;
  const { certificate } = await layer.attend('decode', q.slice(from, end), from, {
    onVisit({ query, firstHead, numHeads, tokens }) {
      for (let head = firstHead; head < firstHead + numHeads; head++) {
        const weights = exactWeights(q.row(query, head), k, Math.floor(head / groupSize), query + 1, scale);
        missing.push(Math.max(0, 1 - massCaptured(weights, tokens)));
      }
      visited += tokens.length * numHeads;
      possible += (query + 1) * numHeads;
    },
  });
  return {
    from,
    to: end - 1,
    certificate: distributionOf(certificate ?? []),
    missing: distributionOf(missing),
    density: possible === 0 ? 1 : visited / possible,
  };
}

/** Ranges of context lengths: the last queries, and those at half and a quarter of that length. */
const numLengths = 3;

function distributionOf(values: ArrayLike<number>): Distribution {
  const sorted = Float64Array.from(values).sort();
  return {
    mean: meanOf(sorted),
    p50: percentile(sorted, 0.5),
    p90: percentile(sorted, 0.9),
    max: sorted.at(-1) ?? 0,
  };
}
