select carrier, count(*) as shipments, max(days_to_ship) as slowest, sum(days_in_transit) as transit_days
from {{ ref('int_shipment_delays') }}
group by carrier
