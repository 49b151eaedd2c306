/** Pictures as paths of a square of 24 by 24. */
const paths = {
  slipway: 'M4 15h16l-3 5H7zM12 3v9M12 4l6 8h-6',
  home: 'M3 11l9-8 9 8M5 10v10h5v-6h4v6h5V10',
  check: 'M5 13l4 4L19 7',
  start: 'M5 12h14M13 6l6 6-6 6',
  devices: 'M6 6h12v12H6zM9 2v4M15 2v4M9 18v4M15 18v4M2 9h4M2 15h4M18 9h4M18 15h4',
  fleets: 'M3 5h18l-7 8v6l-4 2v-8z',
  organizations: 'M9 3h6v5H9zM3 16h6v5H3zM15 16h6v5h-6zM12 8v4M6 16v-4h12v4',
  people: 'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21c0-4 3-6 7-6s7 2 7 6M16 4a4 4 0 0 1 0 7M18 15c3 1 4 3 4 6',
  products: 'M12 2l9 5v10l-9 5-9-5V7zM3 7l9 5 9-5M12 12v10',
  factory: 'M3 21V9l6 4V9l6 4V4h6v17zM8 17h.01M12 17h.01M16 17h.01',
  enrollment: 'M8 16a4 4 0 1 1 3.500-6H21v4h-2v3h-3v-3h-4.500A4 4 0 0 1 8 16zM8 12h.01',
  firmware: 'M12 15V3M7 8l5-5 5 5M4 15v5h16v-5',
  programs: 'M8 7l-5 5 5 5M16 7l5 5-5 5M14 4l-4 16',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14M10 11v6M14 11v6',
  account: 'M12 12a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM3 22c1-5 4-7 9-7s8 2 9 7',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5',
  menu: 'M4 6h16M4 12h16M4 18h16',
  guide: 'M4 5c3-1 6-1 8 1 2-2 5-2 8-1v14c-3-1-6-1-8 1-2-2-5-2-8-1zM12 6v14',
  close: 'M6 6l12 12M18 6L6 18',
  right: 'M9 6l6 6-6 6',
  more: 'M12 5v14M5 12h14',
} as const;
export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
