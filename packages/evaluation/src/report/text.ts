/** Formats the report as text tables. */
import type { CertificateReport, CertificatesAtLength } from '../attention/certificates.js';
import { coverageErrors, type CoverageReport, type ErrorBoundCheck } from '../attention/coverage.js';
import type { Phase } from '../configuration.js';
import { divergencePercentiles, type DivergenceReport } from '../logits/divergence.js';
import type { ConfigurationReport, EvaluationReport } from '../suite/evaluate.js';
import { alignTable, percent, plusMinus, shown, small, type Row } from './table.js';

/** Formats every measured part, a line per configuration; `formatDivergence` formats one comparison as a block. */
export function formatEvaluation(report: EvaluationReport): string {
  const { model, backend, numTokens, attentionTokens, skippedLayers, seed } = report;
  const sections = [
    `${model} on ${backend}, ${numTokens} tokens, seed ${seed}\n`,
    logitsSection(report),
    attentionSection(report),
    certificateSection(report),
    coverageSection(report),
    heavySetSection(report),
    taskSection(report),
    speedSection(report),
    determinismSection(report),
    refusalSection(report),
  ];
  if (skippedLayers.length > 0 && attentionTokens > 0) {
    sections.push(`Attention of layers ${skippedLayers.join(', ')} was skipped: it has a window or a soft cap.\n`);
  }
  return sections.filter((section) => section !== '').join('\n');
}

/** Formats one comparison in full, in the order of `llama-perplexity --kl-divergence`. */
export function formatDivergence(report: DivergenceReport): string {
  const { divergence, deltaP, sameTop, buckets } = report;
  const rows: Row[] = [
    ['tokens', String(report.numTokens)],
    ['PPL, tested', plusMinus(report.testedPpl, 4)],
    ['PPL, base', plusMinus(report.basePpl, 4)],
    ['correlation of ln PPL', `${percent(report.correlation)}`],
    ['PPL ratio', plusMinus(report.pplRatio, 6)],
    ['PPL difference', plusMinus(report.pplDifference, 6)],
    ['mean KLD', `${plusMinus(divergence, 6)}  (${report.class} class)`],
    ['maximum KLD', divergence.max.toFixed(6)],
    ...divergencePercentiles.map((p): Row => [`${+(100 * p).toFixed(1)}% KLD`, divergence.percentiles[p].toFixed(6)]),
    ['mean delta p', `${(100 * deltaP.mean).toFixed(3)} ± ${(100 * deltaP.error).toFixed(3)} %`],
    ['RMS delta p', `${(100 * deltaP.rms).toFixed(3)} %`],
    ['same top p', `${(100 * sameTop.mean).toFixed(2)} ± ${(100 * sameTop.error).toFixed(2)} %`],
    ...buckets.map(({ begin, end, meanDivergence }): Row => [
      `KLD, positions ${begin}-${end - 1}`,
      meanDivergence.toFixed(6),
    ]),
  ];
  return alignTable(rows);
}

function logitsSection({ configurations }: EvaluationReport): string {
  const rows: Row[] = [];
  const spread: Row[] = [];
  for (const report of configurations) {
    for (const phase of ['prefill', 'decode'] as const) {
      const logits = report.logits[phase];
      if (logits === undefined) continue;
      const { divergence, basePpl, testedPpl, pplRatio, pplDifference } = logits;
      rows.push([
        report.label,
        phase,
        shown(report.density[phase], percent),
        report.kvBytesPerToken === undefined ? '-' : String(report.kvBytesPerToken),
        `${testedPpl.mean.toFixed(3)} / ${basePpl.mean.toFixed(3)}`,
        plusMinus(pplRatio, 4),
        plusMinus(pplDifference, 3),
        `${(100 * logits.correlation).toFixed(2)}%`,
        `${small(divergence.mean)} ± ${small(divergence.error)}`,
        logits.class,
        `${percent(logits.sameTop.mean)} ± ${percent(logits.sameTop.error)}`,
        shown(speedOf(report, phase), (value) => value.toFixed(0)),
      ]);
      spread.push([
        report.label,
        phase,
        small(divergence.max),
        ...divergencePercentiles.map((p) => small(divergence.percentiles[p])),
        `${(100 * logits.deltaP.mean).toFixed(3)}%`,
        `${(100 * logits.deltaP.rms).toFixed(2)}%`,
        ...logits.buckets.map(({ meanDivergence }) => small(meanDivergence)),
      ]);
    }
  }
  if (rows.length === 0) return '';
  const buckets = configurations.flatMap(({ logits }) => Object.values(logits))[0]?.buckets ?? [];
  const head =
    'policy|phase|density|KV B/token|PPL tested / base|ratio|difference|cor. ln|mean KLD|class|same top|tokens/s';
  const spreadHead = [
    ...['policy', 'phase', 'max'],
    ...divergencePercentiles.map((p) => `${+(100 * p).toFixed(1)}%`),
    ...['mean dp', 'RMS dp'],
    ...buckets.map(({ begin, end }) => `at ${begin}-${end - 1}`),
  ];
  const first = `Logits compared with dense attention, forced decoding\n${alignTable([head.split('|'), ...rows])}`;
  return (
    `${first}\nKL divergence: maximum, percentiles; probability of the next token; mean by position\n` +
    alignTable([spreadHead, ...spread])
  );
}

function attentionSection({ configurations, attentionTokens }: EvaluationReport): string {
  const rows: Row[] = [];
  const synthetic: Row[] = [];
  let kinds: string[] = [];
  for (const { attention } of configurations) {
    for (const { policy, captured, phases, synthetic: heads } of attention) {
      rows.push([
        policy,
        phases.join('+'),
        percent(captured.density),
        percent(captured.bytesRead / captured.denseBytes),
        small(captured.error),
        small(captured.errorP99),
        small(captured.errorMax),
        percent(captured.mass),
        percent(captured.minMass),
        percent(captured.recall),
        small(captured.oracleError),
        percent(captured.oracleMass),
      ]);
      kinds = heads.map(({ name }) => name);
      synthetic.push([policy, ...heads.map(({ mean }) => `${small(mean.error)} (${small(mean.oracleError)})`)]);
    }
  }
  if (rows.length === 0) return '';
  const head = 'policy|phases|density|bytes|error|99%|max|mass|min mass|recall@32|oracle error|oracle mass';
  const title = `Attention compared with dense attention, second half of ${attentionTokens} tokens, mean over captured layers and heads`;
  const about = 'Synthetic heads of the same length: mean error (of the oracle with the same budget)';
  return `${title}\n${alignTable([head.split('|'), ...rows])}\n${about}\n${alignTable([['policy', ...kinds], ...synthetic])}`;
}

function certificateSection({ configurations }: EvaluationReport): string {
  const rows: Row[] = [];
  for (const { attention } of configurations) {
    for (const { policy, certificates } of attention) {
      for (const { name, density, certificate, missing } of certificates) {
        rows.push([
          policy,
          name,
          percent(density),
          ...[missing.mean, missing.p90, missing.max, certificate.mean, certificate.p50, certificate.p90].map(small),
        ]);
      }
      rows.push(...certificatesByLength(policy, certificates));
    }
  }
  if (rows.length === 0) return '';
  const head = 'policy|layer, tokens|density|missing mass|90%|max|certificate|50%|90%';
  return `Certificates of page-topk and the mass actually missed\n${alignTable([head.split('|'), ...rows])}`;
}

/** Means over layers for shorter contexts; the figures of each layer are in the JSON. */
function certificatesByLength(policy: string, certificates: readonly CertificateReport[]): Row[] {
  const [first] = certificates;
  if (first === undefined) return [];
  return first.lengths.map(({ from, to }, index): Row => {
    const here = certificates.flatMap(({ lengths }) => lengths[index] ?? []);
    const mean = (value: (at: CertificatesAtLength) => number): number =>
      here.reduce((sum, at) => sum + value(at), 0) / here.length;
    const figures = [
      mean(({ missing }) => missing.mean),
      mean(({ missing }) => missing.p90),
      Math.max(...here.map(({ missing }) => missing.max)),
      mean(({ certificate }) => certificate.mean),
      mean(({ certificate }) => certificate.p50),
      mean(({ certificate }) => certificate.p90),
    ];
    return [policy, `all, after ${from}-${to}`, percent(mean(({ density }) => density)), ...figures.map(small)];
  });
}

function coverageSection({ configurations }: EvaluationReport): string {
  const rows: Row[] = [];
  for (const { policy, coverage } of configurations.flatMap(({ attention }) => attention)) {
    if (coverage.length > 0) rows.push(...[...coverage, wholeCoverage(coverage)].map((at) => coverageRow(policy, at)));
  }
  if (rows.length === 0) return '';
  const head = ['policy|layer|rows|within epsilon|exact|1 - delta', ...coverageErrors, 'mean error|density'].join('|');
  const title = 'Errors of attention: rows whose relative error is at most the promised one, and at most each of four';
  return `${title}\n${alignTable([head.split('|'), ...rows])}`;
}

function coverageRow(policy: string, report: CoverageReport): Row {
  const { name, numRows, numWithin, meanError, bound, density } = report;
  const share = (count: number): string => `${((100 * count) / numRows).toFixed(2)}%`;
  const kept =
    bound === undefined
      ? ['-', '-', '-']
      : [share(numRows - bound.numOutside), share(bound.numExact), small(bound.quantile)];
  return [policy, name, String(numRows), ...kept, ...numWithin.map(share), small(meanError), percent(density)];
}

/** All layers together; the quantile is the largest. */
function wholeCoverage(coverage: readonly CoverageReport[]): CoverageReport {
  const sum = (value: (at: CoverageReport) => number): number => coverage.reduce((total, at) => total + value(at), 0);
  const numRows = sum((at) => at.numRows);
  const mean = (value: (at: CoverageReport) => number): number => sum((at) => value(at) * at.numRows) / numRows;
  const checks = coverage.flatMap(({ bound }) => bound ?? []);
  return {
    ...{ name: 'all', layer: undefined, numRows },
    numWithin: coverageErrors.map((_, index) => sum((at) => at.numWithin[index] as number)),
    meanError: mean((at) => at.meanError),
    density: mean((at) => at.density),
    ...(checks.length === 0 ? {} : { bound: sumOfChecks(checks) }),
  };
}

function sumOfChecks(checks: readonly ErrorBoundCheck[]): ErrorBoundCheck {
  return {
    numOutside: checks.reduce((total, { numOutside }) => total + numOutside, 0),
    numExact: checks.reduce((total, { numExact }) => total + numExact, 0),
    quantile: Math.max(...checks.map(({ quantile }) => quantile)),
  };
}

function heavySetSection({ configurations }: EvaluationReport): string {
  const rows: Row[] = [];
  for (const { attention } of configurations) {
    for (const { policy, heavySets } of attention) {
      for (const { name, numSets, betweenRuns, leastBetweenRuns, betweenHeads } of heavySets) {
        rows.push([policy, name, String(numSets), ...[betweenRuns, leastBetweenRuns, betweenHeads].map(small)]);
      }
    }
  }
  if (rows.length === 0) return '';
  const head = 'policy|layer|sets|f32 and q8_0 cache|least|heads of a layer';
  return `Heavy hitters of h2o: Jaccard similarity between runs, and between heads\n${alignTable([head.split('|'), ...rows])}`;
}

function taskSection({ configurations, taskForm }: EvaluationReport): string {
  const first = configurations.find(({ tasks }) => tasks.length > 0)?.tasks;
  if (first === undefined) return '';
  const names = [...new Set(first.map(({ task }) => task))];
  const rows: Row[] = [];
  for (const { label, tasks } of configurations) {
    for (const length of new Set(tasks.map((score) => score.length))) {
      const here = tasks.filter((score) => score.length === length);
      const mean = here.reduce((sum, score) => sum + score.mean, 0) / here.length;
      const cells = names.map((name) => {
        const score = here.find(({ task }) => task === name);
        return score === undefined ? '-' : score.scores.map((value) => (100 * value).toFixed(0)).join('/');
      });
      rows.push([label, String(length), (100 * mean).toFixed(0), ...cells]);
    }
  }
  const about = `Recall tasks (${taskForm} form), %: first/second/third question on the same cache, ${first[0].numCases} cases`;
  return `${about}\n${alignTable([['policy', 'length', 'mean', ...names], ...rows])}`;
}

function speedSection({ configurations }: EvaluationReport): string {
  const rows = configurations.flatMap(({ label, speed }) =>
    speed.map(({ length, promptTokensPerSecond, tokensPerSecond }): Row => {
      return [label, String(length), promptTokensPerSecond.toFixed(0), tokensPerSecond.toFixed(0)];
    }),
  );
  return rows.length === 0 ? '' : `Speed, tokens/s\n${alignTable([['policy', 'length', 'prompt', 'answer'], ...rows])}`;
}

function determinismSection({ determinism }: EvaluationReport): string {
  if (determinism.length === 0) return '';
  const rows = determinism.map((report): Row => {
    const { label, repeats, sameForThreads, threadDifference, backendDifference, bound, isDeterministic } = report;
    const yes = (value: boolean): string => (value ? 'yes' : 'NO');
    const figures = [threadDifference, backendDifference, bound].map((value) => value.toExponential(1));
    return [label, yes(repeats), yes(sameForThreads), ...figures, isDeterministic ? 'ok' : 'OUTSIDE'];
  });
  const head = 'policy|repeats|same for 1 and 2 threads|threads: max|reference: max|bound|';
  return `Determinism, largest differences of log-probabilities\n${alignTable([head.split('|'), ...rows])}`;
}

function refusalSection({ configurations }: EvaluationReport): string {
  const refused = configurations.filter(({ refusal }) => refusal !== undefined);
  if (refused.length === 0) return '';
  return `Not run\n${alignTable(refused.map(({ label, refusal }) => [label, String(refusal)]))}`;
}

/** Tokens per second at the longest measured length. */
function speedOf({ speed }: ConfigurationReport, phase: Phase): number | undefined {
  const longest = speed.reduce<ConfigurationReport['speed'][number] | undefined>(
    (best, point) => (best === undefined || point.length > best.length ? point : best),
    undefined,
  );
  return phase === 'prefill' ? longest?.promptTokensPerSecond : longest?.tokensPerSecond;
}
