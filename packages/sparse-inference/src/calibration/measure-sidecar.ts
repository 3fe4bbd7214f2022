import type { Backend } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { LayerReport, Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import { MatrixProducts } from '../training/matrix-products.js';
import type { CalibrationSource } from './calibration-source.js';
import { LayerMeasurement } from './layer-measurement.js';
import { PredictorScores } from './predictor-scores.js';

/** Options of `measureSidecar`. */
export interface MeasureSidecarOptions {
  readonly backend: Backend;
  /** Tokenized pieces of text. */
  readonly samples: readonly ArrayLike<number>[];
  readonly onProgress?: (doneTokens: number, totalTokens: number) => void;
  readonly signal?: AbortSignal;
}

/**
 * Measures the predictors of a sidecar on a text: one report per layer, in the order of the sidecar.
 * @throws {ArgumentError} when the model does not have a layer of the sidecar
 */
export async function measureSidecar(
  source: CalibrationSource,
  sidecar: Sidecar,
  { backend, samples, onProgress, signal }: MeasureSidecarOptions,
): Promise<LayerReport[]> {
  const totalTokens = samples.reduce((sum, { length }) => sum + length, 0);
  const maxTokens = samples.reduce((max, { length }) => Math.max(max, length), 1);
  const scores = new Map<number, PredictorScores>();
  const products = new MatrixProducts(backend);
  try {
    const measurements = new Map(sidecar.layers.map((layer) => [layer.layer, begin(source, layer, totalTokens)]));
    for (const shape of sidecar.layers) {
      const { layer, predictor } = shape;
      if ('rank' in predictor) {
        scores.set(layer, await PredictorScores.create(backend, predictor, shape, maxTokens));
      }
    }
    let doneTokens = 0;
    for (const sample of samples) {
      signal?.throwIfAborted();
      await source.trace(
        sample,
        async (trace) => {
          const scored = await scores.get(trace.layer)?.of(trace.x);
          measurements.get(trace.layer)?.observe(trace, scored);
        },
        signal === undefined ? {} : { signal },
      );
      doneTokens += sample.length;
      onProgress?.(doneTokens, totalTokens);
    }
    const reports: LayerReport[] = [];
    for (const measurement of measurements.values()) reports.push(await measurement.report(source, products));
    return reports;
  } finally {
    for (const entry of scores.values()) await entry.close();
    await products.close();
  }
}

function begin(source: CalibrationSource, sparse: SparseLayer, numTokens: number): LayerMeasurement {
  const shape = source.layers.find(({ layer }) => layer === sparse.layer);
  if (shape !== undefined) return new LayerMeasurement(shape, sparse, numTokens);
  const expected = `layers of the model, ${source.layers.map(({ layer }) => layer).join(', ')}`;
  throw new ArgumentError({ argument: 'sidecar', expected, actual: String(sparse.layer) });
}
