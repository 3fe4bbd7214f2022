/** System prompt, sampling, JSON schema, API key. Each change applies to the next answer. */
import type { JSX, TargetedEvent } from 'preact';
import { errorText, type Sampling } from '../backend/contract.js';
import { withField, type SettingsStore } from '../state/settings.js';
import { Dialog } from './dialog.js';
import { JsonField } from './fields.js';

interface SettingsDialogProps {
  readonly settings: SettingsStore;
  readonly onClose: () => void;
}

interface NumberField {
  readonly name: keyof Sampling;
  readonly label: string;
  readonly min: number;
  readonly max?: number;
  readonly step: number | 'any';
}

const numberFields: readonly NumberField[] = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 'any' },
  { name: 'topK', label: 'Top-k', min: 0, step: 1 },
  { name: 'topP', label: 'Top-p', min: 0, max: 1, step: 'any' },
  { name: 'minP', label: 'Min-p', min: 0, max: 1, step: 'any' },
  { name: 'repetitionPenalty', label: 'Repetition penalty', min: 0.01, step: 'any' },
  { name: 'maxTokens', label: 'Maximum tokens', min: 1, step: 1 },
  { name: 'seed', label: 'Seed', min: 0, step: 1 },
];

export function SettingsDialog({ settings, onClose }: SettingsDialogProps): JSX.Element {
  const { systemPrompt, showsTokens } = settings.settings.value;
  return (
    <Dialog title="Settings" onClose={onClose}>
      <label>
        System prompt
        <textarea
          rows={3}
          value={systemPrompt}
          onInput={(event) => settings.update({ systemPrompt: event.currentTarget.value })}
        />
      </label>
      <fieldset class="numbers">
        <legend>Sampling (empty fields: what the model recommends)</legend>
        {numberFields.map((field) => (
          <SamplingField key={field.name} field={field} settings={settings} />
        ))}
      </fieldset>
      <SchemaField settings={settings} />
      <label>
        <input
          type="checkbox"
          role="switch"
          checked={showsTokens}
          onChange={(event) => settings.update({ showsTokens: event.currentTarget.checked })}
        />
        Show answers as tokens with their probabilities
      </label>
      <label>
        API key, kept until this tab closes
        <input
          type="password"
          autocomplete="off"
          value={settings.apiKey.value}
          onInput={(event) => (settings.apiKey.value = event.currentTarget.value.trim())}
        />
      </label>
    </Dialog>
  );
}

interface SamplingFieldProps {
  readonly field: NumberField;
  readonly settings: SettingsStore;
}

function SamplingField({ field: { name, label, ...limits }, settings }: SamplingFieldProps): JSX.Element {
  const { sampling } = settings.settings.value;
  const onInput = ({ currentTarget: input }: TargetedEvent<HTMLInputElement>): void => {
    if (input.value !== '' && !input.validity.valid) return;
    settings.update({ sampling: withField(sampling, name, input.value === '' ? undefined : input.valueAsNumber) });
  };
  return (
    <label>
      {label}
      <input type="number" {...limits} value={sampling[name] ?? ''} onInput={onInput} />
    </label>
  );
}

function SchemaField({ settings }: Pick<SettingsDialogProps, 'settings'>): JSX.Element {
  const { jsonSchema } = settings.settings.value;
  return (
    <JsonField
      name="schema"
      label="JSON schema of the answers (optional)"
      rows={3}
      text={jsonSchema}
      problem={schemaProblem(jsonSchema)}
      onInput={(text) => settings.update({ jsonSchema: text })}
    />
  );
}

/** Checks the syntax only: what the server or the engine rejects in a schema appears with the answer. */
function schemaProblem(text: string): string {
  if (text.trim() === '') return '';
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? '' : 'A schema is a JSON object.';
  } catch (error) {
    return errorText(error);
  }
}
