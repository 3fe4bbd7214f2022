/** What `page-topk` promises beside what is true: the certificate and the softmax mass that was really missed. */
import {
  createFamily,
  exactWeights,
  massCaptured,
  PageTopKAttention,
  rowsOf,
  type PageTopKPolicy,
} from '@winnow/sparse-attention';
import { ArgumentError, Tensor3 } from '@winnow/tensor';
import { meanOf, percentile } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';

export interface CertificateReport {
  readonly name: string;
  readonly layer: number | undefined;
  readonly numQueries: number;
  /** Bound of the missing mass, over queries and heads. */
  readonly certificate: Distribution;
  /** The mass that was really missing. */
  readonly missing: Distribution;
  readonly density: number;
  /** The same for shorter contexts, too: queries after `from` to `to` tokens, each range twice as long as the one before. */
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

/** Queries from `begin` on, one by one as in decoding. */
export function measureCertificates(
  policy: PageTopKPolicy,
  capture: AttentionCapture,
  begin: number,
): CertificateReport {
  const { q, k, v, scale, name, layer } = capture;
  const { numHeads } = q;
  const groupSize = numHeads / k.numHeads;
  const family = createFamily(policy, {
    kv: { keys: rowsOf(k), values: rowsOf(v), length: k.seqLen },
    numHeads,
    scale,
  });
  if (!(family instanceof PageTopKAttention)) {
    throw new ArgumentError({ argument: 'policy', expected: 'page-topk', actual: policy.kind });
  }
  const out = Tensor3.create(1, numHeads, v.headDim);
  const measure = (from: number, end: number): CertificatesAtLength => {
    const certificates: number[] = [];
    const missing: number[] = [];
    let visited = 0;
    let possible = 0;
    for (let position = from; position < end; position++) {
      family.attend(q.slice(position, position + 1), position, out, {
        visits: {
          visit(query, firstHead, count, tokens, numTokens) {
            for (let head = firstHead; head < firstHead + count; head++) {
              const weights = exactWeights(q.row(query, head), k, Math.floor(head / groupSize), query + 1, scale);
              missing.push(Math.max(0, 1 - massCaptured(weights, tokens, numTokens)));
            }
            visited += numTokens * count;
            possible += (query + 1) * count;
          },
        },
      });
      for (let head = 0; head < numHeads; head++) certificates.push(family.report.certificate[head]);
    }
    return {
      from,
      to: end - 1,
      certificate: distributionOf(certificates),
      missing: distributionOf(missing),
      density: possible === 0 ? 1 : visited / possible,
    };
  };
  const whole = measure(begin, q.seqLen);
  const lengths = [whole];
  for (let end = begin; lengths.length < numLengths && end >= 2; end >>= 1) lengths.unshift(measure(end >> 1, end));
  const { certificate, missing, density } = whole;
  return { name, layer, numQueries: (q.seqLen - begin) * numHeads, certificate, missing, density, lengths };
}

/** Ranges of lengths: the last queries, and those of contexts of half and a quarter of their lengths. */
const numLengths = 3;

function distributionOf(values: readonly number[]): Distribution {
  const sorted = Float64Array.from(values).sort();
  return {
    mean: meanOf(sorted),
    p50: percentile(sorted, 0.5),
    p90: percentile(sorted, 0.9),
    max: sorted.at(-1) ?? 0,
  };
}
