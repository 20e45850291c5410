select order_id, carrier, days_to_ship from {{ ref('int_shipment_delays') }} where days_to_ship > 2
