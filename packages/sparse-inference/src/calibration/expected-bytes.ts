import { scoreWeights } from '../lowering/low-rank-scores.js';
import type { PredictorTables } from '../sidecar/sidecar.js';
import type { CalibrationLayer } from './calibration-source.js';

/** Bytes of weights that one token reads: with all neurons, and with the active ones and their predictor. */
export function expectedBytes(
  { hiddenDim, ffnDim, isGated, weightBytes }: CalibrationLayer,
  predictor: PredictorTables,
  { activeRatio, inputRatio }: { readonly activeRatio: number; readonly inputRatio: number },
): { readonly denseBytes: number; readonly sparseBytes: number } {
  const matrixBytes = hiddenDim * ffnDim * 2;
  const { gate = isGated ? matrixBytes : 0, up, down } = weightBytes ?? { up: matrixBytes, down: matrixBytes };
  const denseBytes = gate + up + down;
  const thresholdBytes = ffnDim * 4;
  switch (predictor.kind) {
    case 'low-rank':
    case 'low-rank-product': {
      let tableBytes = thresholdBytes;
      for (const { bytes } of scoreWeights(predictor).values()) tableBytes += bytes.length;
      return { denseBytes, sparseBytes: tableBytes + activeRatio * denseBytes };
    }
    case 'gate-threshold': {
      const [whole, rest] = isGated ? [gate, up + down] : [up, down];
      return { denseBytes, sparseBytes: whole + thresholdBytes + activeRatio * rest };
    }
    default: {
      const inputBytes = hiddenDim * 4 + inputRatio * (gate + up);
      return { denseBytes, sparseBytes: inputBytes + thresholdBytes + activeRatio * down };
    }
  }
}
