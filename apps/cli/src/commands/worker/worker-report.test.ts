import { expect, test } from 'vitest';
import { LineFigures } from '../batch/figures.js';
import { progressLine, WorkerReport } from './worker-report.js';

test('rates are those of the last reports, and the time left that of all workers', () => {
  let ms = 0;
  const figures = new LineFigures();
  const report = new WorkerReport(figures, () => ms);
  const next = (atMs: number, numAnswered: number, waiting: number, running = 4) => {
    ms = atMs;
    figures.numAnswered = numAnswered;
    return report.next({ waiting, running });
  };
  expect(next(0, 0, 96)).toEqual({ answered: 0, failed: 0, waiting: 96, running: 4, linesPerSecond: 0 });
  expect(next(1000, 0, 96)).toBe(undefined); // nothing has changed
  // another worker has answered 10 lines meanwhile
  const second = next(2000, 10, 76);
  expect(second).toMatchObject({ answered: 10, linesPerSecond: 5, secondsLeft: 8 });
  expect(progressLine(second as never)).toBe('10 lines answered, 5 lines/s; 76 wait and 4 run in the queue, 8 s left');
  report.numFailed = 1;
  // more lines came: no time left is known
  const third = next(4000, 19, 400);
  expect(third).toEqual({ answered: 19, failed: 1, waiting: 400, running: 4, linesPerSecond: 5 });
  expect(progressLine(third as never)).toContain('19 lines answered, 1 failed, 5 lines/s; 400 wait');
});
