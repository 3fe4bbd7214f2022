/** Charts as SVG, drawn by ECharts without a DOM (docs/decisions/0009). */
import { LineChart } from 'echarts/charts';
import { GridComponent, LegendComponent, TitleComponent } from 'echarts/components';
import { init, use, type EChartsCoreOption } from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';

export interface PlotOptions {
  readonly width?: number;
  readonly height?: number;
}

const colors = '#1f77b4 #d62728 #2ca02c #9467bd #ff7f0e #17becf #8c564b #e377c2 #7f7f7f #bcbd22 #393b79 #637939'.split(
  ' ',
);

export function titleOf(text: string): object {
  return { text, left: 12, top: 8, textStyle: { fontSize: 14, fontWeight: 'normal' } };
}

export function axisOf(type: 'log' | 'value', name: string): object {
  return { type, name, nameLocation: 'middle', nameGap: 34, splitLine: { lineStyle: { color: '#eeeeee' } } };
}

export function draw(chart: EChartsCoreOption, { width = 900, height = 520 }: PlotOptions): string {
  use([LineChart, GridComponent, LegendComponent, TitleComponent, SVGRenderer]);
  const view = init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    view.setOption({
      animation: false,
      color: colors,
      backgroundColor: '#ffffff',
      grid: { left: 72, right: 250, top: 48, bottom: 56 },
      legend: { orient: 'vertical', right: 8, top: 48, itemWidth: 18, textStyle: { fontSize: 10 } },
      ...chart,
    });
    return view.renderToSVGString();
  } finally {
    view.dispose();
  }
}
